"""The network of on-policy algorithms: encoder -> memory -> hidden layers -> action head, and the same for the value.

This class serves every combination of mask, memory, observation, action space and state-dependent noise. Masks are part
of the observation; recurrent states and noise matrices are part of the carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions.gaussian import with_least_deviation
from rlsdk.errors import UsageError
from rlsdk.interfaces import Distribution, explain_names
from rlsdk.interfaces.policy import ActInPlace
from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import ActorCriticLayers, Acts, PlainHead, PolicyActor, is_dense
from rlsdk.networks.action_heads import PLAIN, ActionHead, NoiseMatrices, SdeHead, StateDependentNoise
from rlsdk.networks.encoders import is_fixed, is_identity
from rlsdk.networks.layers import has_train_mode
from rlsdk.networks.recurrent import Memory, NoMemory
from rlsdk.records import Act, Features, Observation, StepData
from rlsdk.tree import map_tensors

States = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ActorCriticCarry:
    """The carry of each environment: the recurrent states of actor and critic, and the noise matrices of gSDE."""

    actor: States
    critic: States
    noise: NoiseMatrices | tuple[()]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """The extras of a step: log pi(a|s) and V(s), float [B], and the recurrent states of actor and critic before the
    step.

    If they are None, `ActorCritic.estimates` computes them later for a whole rollout. If it leaves them None, the network has
    `stores_estimates = False`.
    """

    log_prob: Tensor | None
    value: Tensor | None
    memory: tuple[States, States]


DEFERRED = Estimates(None, None, ((), ()))
"""The extras of a step of a network of dense layers, with any kernel. They are computed later."""
RolloutAct = Callable[..., Act[ActorCriticCarry, Estimates]]
"""A function with the arguments of `ActorCritic.act`."""


@dataclass(frozen=True, slots=True, eq=False)
class Torso:
    """The parts of one side, actor or critic. If the critic's `memory` is None, it uses the actor's latent, without
    gradient."""

    encoder: nn.Module
    memory: nn.Module | None
    body: nn.Module


def _act_only(
    kernel: PolicyActor, seen: Observation, carry: ActorCriticCarry, deterministic: bool, generator: Generator
) -> Act[ActorCriticCarry, Estimates]:
    """Act for observations [B, ..]; the extras are computed later."""
    return Act(kernel.act(seen, deterministic, generator), carry, DEFERRED)


class ReadsInputs(Protocol):
    """Converts users' observations and actions to records and tensors; see `rlsdk.agent.prediction`."""

    def read(
        self, given: object, memory: object = None, action_masks: object = None, episode_starts: object = None
    ) -> tuple[Observation, object]: ...

    def action(self, given: object) -> Any: ...


@explain_names
class ActorCritic(nn.Module):
    """A policy and its value function."""

    reader: ReadsInputs | None = None
    """Set by the agent. Without it, the methods for users take records only."""
    stores_estimates = True
    """Whether rollouts contain values, and log-probabilities of their actions. Losses that use no log-probabilities can set it
    to False. `policy_batch` then computes the values of the whole rollout together."""

    def __init__(self, actor: Torso, critic: Torso, head: nn.Module, value: nn.Module, *, kernel: str = "auto") -> None:
        """`kernel` is the `setting` of `rlsdk.kernels.KernelChoice`."""
        super().__init__()
        # one name for a shared encoder, so that its parameters are counted and stored once
        self.shares_encoder = actor.encoder is critic.encoder
        self.encoder, self.memory, self.body, self.head = actor.encoder, actor.memory, actor.body, head
        self.critic_encoder = None if self.shares_encoder else critic.encoder
        self.critic_memory, self.critic_body, self.value = critic.memory, critic.body, value
        self.resample_every: int | None = None
        self.use_masks = True
        self.sde = head.noise if isinstance(head, SdeHead) else None
        self.kernel_setting = kernel
        self.has_train_mode = self.recurrent = False
        """`recurrent`: whether updates need consecutive steps in order."""
        self._kernels = KernelSlot(self._make_kernels, self)

    def _make_kernels(self, hooked: bool) -> tuple[Acts, PolicyActor]:
        """Build the kernels for acting and for values."""
        self.has_train_mode = has_train_mode(self.encoder, self.critic_encoder, self.body, self.critic_body)
        # a memory without state has no order of steps, so minibatches may be shuffled
        self.recurrent = bool(cast("Memory", self.memory).initial(1))
        if isinstance(self.head, SdeHead):
            self.sde = self.head.noise
        self._has_log_std = isinstance(getattr(self.head, "log_std", None), Tensor)
        self._dense = self.dense_layers()
        kernel = factory.policy_actor(self._dense, KernelChoice(self.kernel_setting), hooked, ActorByModules(self))
        # dense networks leave values and log-probabilities to `estimates`: one call for a rollout is faster than one a
        # step
        act = self._act_and_estimate if self._dense is None else partial(_act_only, kernel)
        # a CUDA graph repeats operations, and would skip hooks, modes and the draws of new noise matrices
        as_written = hooked or self.has_train_mode or self.sde is not None
        return factory.graphed_acting(act, self, self.kernel_setting, as_written), kernel

    def dense_layers(self) -> ActorCriticLayers | None:
        """The layers for a kernel, if all are dense; else None.

        Also None if the network has a memory, state-dependent noise, or encoders with parameters.
        """
        encoders = [part for part in (self.encoder, self.critic_encoder) if part is not None]
        if type(self.head) not in PLAIN or not all(map(is_fixed, encoders)):
            return None
        # exact types, because a subclass may compute something else
        if type(self.memory) is not NoMemory or type(self.critic_memory) is not NoMemory:
            return None
        head = cast("PlainHead", self.head)
        actor = [*cast("nn.Sequential", self.body), head.linear]
        critic = [*cast("nn.Sequential", self.critic_body), self.value]
        if not is_dense(actor) or not is_dense(critic):
            return None
        vector = is_identity(self.encoder)
        return ActorCriticLayers(self.encoder, actor, critic, head, self.actor_parameters, vector, self.use_masks)

    def refit(self) -> None:
        """Examine the modules again, in case some were replaced. Updates call this before they learn."""
        self._kernels()

    @property
    def _memory(self) -> Memory:
        return cast("Memory", self.memory)

    @property
    def actor_parameters(self) -> list[nn.Parameter]:
        """The parameters that the action distribution depends on."""
        parts = [self.encoder, self.memory, self.body, self.head]
        return [p for part in parts if part is not None for p in part.parameters()]

    def reconfigure(self, config: object) -> None:
        """Set the period of noise matrices from new settings: `sde_sample_freq` steps, or one rollout."""
        every = getattr(config, "sde_sample_freq", -1)
        self.resample_every = every if every > 0 else None

    # --- acting ------------------------------------------------------------------------------------------------------

    def initial_carry(self, batch: int) -> ActorCriticCarry:
        critic = () if self.critic_memory is None else cast("Memory", self.critic_memory).initial(batch)
        return ActorCriticCarry(self._memory.initial(batch), critic, self.sde.initial(batch) if self.sde else ())

    @property
    def begin_rollout(self) -> Callable[[ActorCriticCarry], ActorCriticCarry] | None:
        """With gSDE, a function that returns the carry for the start of a rollout; see `rlsdk.interfaces.PolicyAbilities`."""
        if self.sde is None:
            return None
        # a property, so that networks without noise have no method that the collector would call
        return lambda carry: ActorCriticCarry(
            carry.actor, carry.critic, StateDependentNoise.begin_rollout(cast("NoiseMatrices", carry.noise))
        )

    def act(
        self, observation: Observation, carry: ActorCriticCarry, *, deterministic: bool, generator: Generator
    ) -> Act[ActorCriticCarry, Estimates]:
        return self.rollout_act()(observation, carry, deterministic=deterministic, generator=generator)

    def rollout_act(self) -> RolloutAct:
        """Return `act` for one rollout, in which layers and hooks do not change. They are examined here, not at every step."""
        acts, _ = self._kernels()
        if self.has_train_mode:
            self.eval()
        return acts

    @property
    def act_in_place(self) -> ActInPlace | None:
        """See `rlsdk.interfaces.PolicyAbilities`; None if the kernel cannot."""
        return self._act_in_place if self._kernels()[1].acts_in_place else None

    def _act_in_place(
        self, observation: Observation, carry: ActorCriticCarry, generator: Generator, /
    ) -> tuple[Callable[[int], object], Tensor, Estimates] | None:
        """Prepare acting on observations [T, B, ..]."""
        _, kernel = self._kernels()
        prepared = None if self._dense is None or self.has_train_mode else kernel.act_in_place(observation, generator)
        return None if prepared is None else (*prepared, DEFERRED)

    @torch.no_grad()
    def _act_and_estimate(
        self, observation: Observation, carry: ActorCriticCarry, deterministic: bool, generator: Generator
    ) -> Act[ActorCriticCarry, Estimates]:
        features, others = self._encoded(observation.features)
        latent, actor = self._memory.step(features, carry.actor, observation.is_first)
        latent_value, critic = self._critic_step(others, latent, carry.critic, observation.is_first)
        latent = self.body(latent)
        distribution = self.head(latent, observation.action_mask if self.use_masks else None)
        noise = carry.noise
        if deterministic:
            action = distribution.mode()
        elif self.sde is None:
            action = distribution.sample(generator)
        else:
            assert isinstance(noise, NoiseMatrices)
            noise = self.sde.refreshed(noise, self.resample_every, generator)
            # the noise is that of the matrix, not a sample of the distribution, and stays the same for several steps
            action = cast("SdeHead", self.head).explore(latent, noise.matrix)
        value = self.value(self.critic_body(latent_value)).squeeze(-1)
        # the states before the step: learning starts sequences from them
        extras = Estimates(distribution.log_prob(action), value, (carry.actor, carry.critic))
        environment = cast("ActionHead", self.head).to_environment(action)
        return Act(environment, ActorCriticCarry(actor, critic, noise), extras)

    @torch.no_grad()
    def estimates(self, steps: StepData[Estimates]) -> Estimates:
        """Return the extras of steps [T, B]: those computed while acting, or all computed now.

        The network must still have the weights it acted with.
        """
        extras = steps.extras
        if extras.value is not None or not self.stores_estimates:
            return extras
        lead = steps.reward.shape
        _, kernel = self._kernels()
        distribution, value = kernel.forward(map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation))
        taken = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.action)
        log_prob = distribution().log_prob(cast("ActionHead", self.head).from_environment(taken))
        return Estimates(log_prob.view(lead), value.view(lead), extras.memory)

    def _encoded(self, features: Features) -> tuple[Tensor, Tensor]:
        """(encoded features [N, F] for the actor, the same for the critic)."""
        encoded = self.encoder(features)
        return encoded, encoded if self.critic_encoder is None else self.critic_encoder(features)

    def _critic_step(self, features: Tensor, latent: Tensor, state: States, is_first: Tensor) -> tuple[Tensor, States]:
        if self.critic_memory is None:
            # the values do not train a memory that they share with the actor, as in sb3-contrib
            return latent.detach(), ()
        return cast("Memory", self.critic_memory).step(features, state, is_first)

    # --- learning ----------------------------------------------------------------------------------------------------

    def evaluate(
        self, observation: Observation, memory: tuple[States, States], starts: Tensor
    ) -> tuple[Distribution, Tensor]:
        """Return (action distribution, values [N]) of N steps. With a memory they must be in order; see `Memory.sequence`."""
        features, others = self._encoded(observation.features)
        latent = self._memory.sequence(features, memory[0], observation.is_first, starts)
        if self.critic_memory is None:
            # without gradient, as while acting
            latent_value = latent.detach()
        else:
            latent_value = cast("Memory", self.critic_memory).sequence(others, memory[1], observation.is_first, starts)
        mask = observation.action_mask if self.use_masks else None
        distribution: Distribution = self.head(self.body(latent), mask)
        return distribution, self.value(self.critic_body(latent_value)).squeeze(-1)

    def values_after(self, observation: Observation, memory: tuple[States, States]) -> Tensor:
        """V [N] of observations, given the recurrent states `memory` (the carry after the step before them)."""
        features, others = self._encoded(observation.features)
        first, shared = observation.is_first, self.critic_memory is None
        latent = self._memory.step(features, memory[0], first)[0] if shared else features
        latent, _ = self._critic_step(others, latent, memory[1], first)
        return cast("Tensor", self.value(self.critic_body(latent)).squeeze(-1))

    def found_values(self, observation: Observation, memory: tuple[States, States]) -> Tensor:
        """The values [N] of `values_after`, without graph."""
        _, kernel = self._kernels()
        if self._dense is not None:
            return kernel.values(observation)
        with torch.no_grad():
            return self.values_after(observation, memory)

    def state_values(self, observation: Observation) -> Tensor:
        """V [N]; see `rlsdk.interfaces.PolicyAbilities`."""
        carry = self.initial_carry(len(observation.is_first))
        return self.values_after(observation, (carry.actor, carry.critic))

    def internal(self, action: object) -> Any:
        """Convert actions in environment units to the internal actions of the distribution."""
        return cast("ActionHead", self.head).from_environment(action)

    def imitation_loss(self, observation: Observation, action: Any, starts: Tensor | None = None) -> Tensor:
        """The loss -log pi(a|s) [N], with a lower bound of the standard deviation; see `rlsdk.interfaces.PolicyAbilities`."""
        # recorded actions without noise would drive the deviation to 0 and the likelihood to infinity
        distribution = with_least_deviation(self.evaluate(*as_recorded(self, observation, starts))[0])
        return -distribution.log_prob(self.internal(action))

    def action_std(self) -> Tensor | None:
        """Mean standard deviation of Box actions, 0-d; None for other actions."""
        if self.sde is not None:
            return self.sde.std().detach().mean()
        return cast("Tensor", self.head.log_std).detach().exp().mean() if self._has_log_std else None

    # --- for users -----------------------------------------------------------------------------------------------------

    def get_distribution(
        self, observation: object, memory: object = None, *, action_masks: object = None, episode_starts: object = None
    ) -> Distribution:
        """Return the action distribution, over internal actions.

        Args:
            observation: a record, or observations of the agent's space in numpy or torch, one or [N, ..].
            memory: the carry that `predict` returned; None: episodes start here. An array is used as `action_masks`.
            action_masks: bool [A] or [N, A], True where the action is allowed.
            episode_starts: bool [N], True where an episode has just begun; None: everywhere without `memory`, else nowhere.

        Raises:
            ObservationError: the observation is outside the space.
            MaskError: the mask cannot be used.
            UsageError: `observation` is not a record, and the policy has no agent that converts it.
        """
        seen, states = self._asked(observation, memory, action_masks, episode_starts)
        # rows of users are independent: each begins its own sequence, with its own state
        starts = torch.ones(len(seen.is_first), dtype=torch.bool, device=seen.is_first.device)
        return self.evaluate(seen, states, starts)[0]

    distribution_of = get_distribution

    def predict_values(
        self, observation: object, memory: object = None, *, action_masks: object = None, episode_starts: object = None
    ) -> Tensor:
        """V [N]; arguments and errors as for `get_distribution`."""
        return self.values_after(*self._asked(observation, memory, action_masks, episode_starts))

    def evaluate_actions(
        self,
        observation: object,
        action: object,
        memory: object = None,
        *,
        action_masks: object = None,
        episode_starts: object = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (values, log-probabilities, entropies), each [N].

        `action` is in environment units, in numpy or torch. Other arguments and errors are as for `get_distribution`.
        """
        seen, states = self._asked(observation, memory, action_masks, episode_starts)
        distribution = self.get_distribution(seen, states)
        taken = action if self.reader is None else self.reader.action(action)
        return self.values_after(seen, states), distribution.log_prob(self.internal(taken)), distribution.entropy()

    def _asked(
        self, observation: object, memory: object, action_masks: object, episode_starts: object
    ) -> tuple[Observation, tuple[States, States]]:
        if self.reader is not None:
            observation, memory = self.reader.read(observation, memory, action_masks, episode_starts)
        if not isinstance(observation, Observation):
            raise UsageError(
                f"a policy without an agent reads rlsdk.records.Observation, not {type(observation).__name__}"
            )
        # the carry that `predict` returns has further entries, so both forms are accepted
        carry = self.initial_carry(len(observation.is_first)) if memory is None else memory
        if isinstance(carry, ActorCriticCarry):
            return observation, (carry.actor, carry.critic)
        return observation, cast("tuple[States, States]", carry)


def as_recorded(
    network: ActorCritic, observation: Observation, starts: Tensor | None = None
) -> tuple[Observation, tuple[States, States], Tensor]:
    """Return the arguments of `ActorCritic.evaluate` for recorded steps [N, ..] without stored carries.

    `starts`, bool [N], is True where a sequence of consecutive rows begins, with the initial recurrent state; None: every
    row is a sequence.
    """
    first = torch.ones_like(observation.is_first) if starts is None else starts
    # no carry was recorded, so every sequence has to start from the initial one
    seen = Observation(observation.features, observation.is_first | first, observation.action_mask)
    carry = network.initial_carry(len(first))
    return seen, (carry.actor, carry.critic), first


NONE: tuple[States, States] = ((), ())
"""The empty recurrent states of actor and critic."""


class ActorByModules:
    """See `rlsdk.kernels.protocol.PolicyActor`."""

    acts_in_place = False

    def __init__(self, network: ActorCritic) -> None:
        self.network = network

    @torch.no_grad()
    def act(self, observation: Observation, deterministic: bool, generator: Generator) -> Tensor:
        """Actions [B, ..] in environment units."""
        network = self.network
        mask = observation.action_mask if network.use_masks else None
        distribution = network.head(network.body(network.encoder(observation.features)), mask)
        action = distribution.mode() if deterministic else distribution.sample(generator)
        return cast("Tensor", cast("ActionHead", network.head).to_environment(action))

    def act_in_place(self, observation: Observation, generator: Generator) -> None:
        """Return None: modules return new tensors [B, ..]."""
        return

    @torch.no_grad()
    def forward(self, observation: Observation) -> tuple[Callable[[], Distribution], Tensor]:
        """Return (function that creates the distribution, values [N])."""
        distribution, value = self.network.evaluate(observation, NONE, observation.is_first)
        return lambda: distribution, value

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """The values [N]."""
        return self.network.values_after(observation, NONE)
