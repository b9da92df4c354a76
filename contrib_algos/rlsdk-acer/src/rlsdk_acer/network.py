"""The network of ACER: encoder, memory and shared layers, then one head for the policy and one for action values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Categorical
from rlsdk.interfaces import explain_names
from rlsdk.networks import Layers, Memory, NoMemory, has_train_mode
from rlsdk.records import Act, Observation, Sequences
from rlsdk.spaces import Discrete
from rlsdk.tree import map_tensors

Carry = tuple[Tensor, ...]
"""The recurrent state of each environment, [B, ..]; () without a memory."""


@explain_names
class ACERNetwork(nn.Module):
    """A softmax policy and the values Q(x, .) of all actions. V(x) is the mean of Q(x, .) under the policy."""

    def __init__(self, encoder: nn.Module, memory: Memory, pi: nn.Sequential, qf: nn.Module, space: Discrete) -> None:
        """`pi`, `qf`: layers from latents [N, H] to one output per action; `space`: the action space."""
        super().__init__()
        self.encoder, self.memory, self.qf = encoder, memory, qf
        # the same names as in other actor-critics, so that `load_policy` finds these layers in their files
        self.body, self.head = pi[:-1], nn.Sequential(OrderedDict(linear=pi[-1]))
        self._logits, self._values = Layers(self, "body", "head"), Layers(self, "qf")
        self.start, self.actions = space.start, space.n
        self.has_train_mode = has_train_mode(*self.children())
        self.recurrent = not isinstance(memory, NoMemory)

    # --- acting ------------------------------------------------------------------------------------------------------

    def initial_carry(self, batch: int) -> Carry:
        return self.memory.initial(batch)

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: Carry, *, deterministic: bool, generator: Generator
    ) -> Act[Carry, Mapping[str, Tensor]]:
        """The extras hold the probabilities of all actions, float [B, A], and the log-probability of the one taken, [B]."""
        if self.has_train_mode:
            self.eval()
        latent, following = self.memory.step(self.encoder(observation.features), carry, observation.is_first)
        chosen = self.policy(latent, observation.action_mask)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        extras = {"probs": chosen.probs, "log_prob": chosen.log_prob(action)}
        return Act(action + self.start if self.start else action, following, extras)

    # --- learning ----------------------------------------------------------------------------------------------------

    def policy(self, latent: Tensor, mask: Tensor | None) -> Categorical:
        """The distribution over actions, numbered from 0, of latents [N, H]. `mask`, bool [N, A], is False for forbidden
        actions."""
        return Categorical.of(self._logits(latent), mask)

    def evaluate(self, latent: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], None]]:
        """Return (pi(.|x), Q(x, .), vjp) of latents [N, H], float [N, A] each, without graph.

        `vjp` takes the gradients of a loss with respect to both, and adds those with respect to parameters to their `grad`.
        """
        (logits, logits_vjp), (values, values_vjp) = self._logits.evaluate(latent), self._values.evaluate(latent)
        probs = Categorical.of(logits, mask).probs

        def vjp(grad_probs: Tensor, grad_values: Tensor) -> None:
            grad_logits = probs * (grad_probs - (grad_probs * probs).sum(-1, keepdim=True))
            first, second = logits_vjp(grad_logits), values_vjp(grad_values)
            if first is not None and second is not None:
                torch.autograd.backward(latent, first + second)

        return probs, values, vjp

    def unrolled(self, batch: Sequences[Carry]) -> tuple[Tensor, Carry]:
        """Return (latents [T * N, H] of sequences, the recurrent state [T * N, ..] after each step).

        Step t of sequence n is row t * N + n. The state begins with the stored carry, and with zeros at each episode.
        """
        observation = batch.steps.observation
        features = self.encoder(map_tensors(lambda leaf: leaf.flatten(0, 1), observation.features))
        if not self.recurrent:
            return features, ()
        assert batch.initial_carry is not None
        state, latents, states = batch.initial_carry, [], []
        for row, is_first in zip(features.unflatten(0, batch.steps.reward.shape), observation.is_first, strict=True):
            latent, state = self.memory.step(row, state, is_first)
            latents.append(latent)
            states.append(state)
        return torch.cat(latents), tuple(torch.cat(parts) for parts in zip(*states, strict=True))

    @torch.no_grad()
    def values_after(self, batch: Sequences[Carry], memory: Carry, rows: Tensor) -> Tensor:
        """V of the next observations of the steps at `rows`, int64 [K] into [T * N], float [K]. `memory`: the recurrent state
        after every step, [T * N, ..]."""
        if self.has_train_mode:  # targets: no noise, and batch norm must accept one row
            self.eval()
        following = map_tensors(lambda leaf: leaf.flatten(0, 1)[rows], batch.next_observation)
        continued = replace(following, is_first=torch.zeros_like(following.is_first))  # no episode begins here
        return self._state_values(continued, tuple(part[rows] for part in memory))

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """-log pi(a|s) [N]; see `rlsdk.interfaces.PolicyAbilities`."""
        begins = torch.ones_like(observation.is_first) if starts is None else starts
        carry, first = self.initial_carry(len(begins)), observation.is_first | begins
        latent = self.memory.sequence(self.encoder(observation.features), carry, first, begins)
        return -self.policy(latent, observation.action_mask).log_prob(action - self.start)

    def distribution_of(self, observation: Observation) -> Categorical:
        """The distribution over actions, numbered from 0, of observations [N] that begin episodes."""
        carry = self.initial_carry(len(observation.is_first))
        latent, _ = self.memory.step(self.encoder(observation.features), carry, observation.is_first)
        return self.policy(latent, observation.action_mask)

    def state_values(self, observation: Observation) -> Tensor:
        """V of observations [N], float [N]; see `rlsdk.interfaces.PolicyAbilities`."""
        return self._state_values(observation, self.initial_carry(len(observation.is_first)))

    def _state_values(self, observation: Observation, carry: Carry) -> Tensor:
        latent, _ = self.memory.step(self.encoder(observation.features), carry, observation.is_first)
        return (self.policy(latent, observation.action_mask).probs * self._values(latent)).sum(-1)
