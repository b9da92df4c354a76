"""The network of on-policy algorithms: encoder -> memory -> hidden layers -> action head, and the same for the value.

Every combination of mask, memory, observation and action space, and state-dependent noise is this one class: masks are in
the observation, memories and noise matrices in the carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Gaussian, SquashedGaussian
from rlsdk.engines import NUMPY, NUMPY_ACTING_ROWS, Fitted
from rlsdk.exploration.state_dependent_noise import NoiseMatrices, StateDependentNoise
from rlsdk.interfaces import Distribution
from rlsdk.memories import Memory
from rlsdk.networks.action_heads import ActionHead
from rlsdk.networks.modes import mode_matters
from rlsdk.networks.sides import Sides, sides_of
from rlsdk.records import Act, Observation, StepData
from rlsdk.tree import map_tensors

States = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ActorCriticCarry:
    """What is remembered of each environment: the actor's and the critic's memory, and gSDE's matrices."""

    actor: States
    critic: States
    noise: NoiseMatrices | tuple[()]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """What an update needs to know of a step: log pi(a|s) and V(s), float [B], and both memories before the step.

    Where both are None they are left for `ActorCritic.estimates`, which finds those of a whole rollout at once.
    """

    log_prob: Tensor | None
    value: Tensor | None
    memory: tuple[States, States]


DEFERRED = Estimates(None, None, ((), ()))


@dataclass(frozen=True, slots=True, eq=False)
class Torso:
    """The parts of one side, actor or critic. `memory` None: the actor's latent is used, without gradient."""

    encoder: nn.Module
    memory: nn.Module | None
    body: nn.Module


class SdeHead(nn.Module):
    """A Gaussian mean with state-dependent noise; squashed by tanh into a bounded Box when `scale` is given."""

    def __init__(self, head: nn.Module, noise: StateDependentNoise, scale: nn.Module | None) -> None:
        super().__init__()
        self.head, self.noise, self.scale = head, noise, scale

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian | SquashedGaussian:
        mean = cast("Any", self.head).linear(latent)
        kind = Gaussian if self.scale is None else SquashedGaussian
        return kind(mean, self.noise.log_std_of(latent))

    def explore(self, latent: Tensor, matrices: Tensor) -> Tensor:
        """Internal actions [B, A] with the noise of these matrices."""
        raw: Tensor = cast("Any", self.head).linear(latent) + self.noise.noise(latent, matrices)
        return raw if self.scale is None else raw.tanh()

    def to_environment(self, action: Tensor) -> Any:
        return cast("Any", self.head if self.scale is None else self.scale).to_environment(action)

    def from_environment(self, action: Tensor) -> Any:
        if self.scale is None:
            return cast("Any", self.head).from_environment(action)
        return cast("Any", self.scale).to_unit(action)


class InputReader(Protocol):
    """Turns observations and actions as users have them into records and tensors; see `rlsdk.agent.prediction`."""

    def observation(self, given: Any, action_masks: Any = None, episode_starts: Any = None) -> Observation: ...

    def action(self, given: Any) -> Any: ...


class ActorCritic(nn.Module):
    """A policy and its value function."""

    reader: InputReader | None = None
    """Given by the agent; without one the methods for users take records only."""

    def __init__(self, actor: Torso, critic: Torso, head: nn.Module, value: nn.Linear, *, engine: str = "auto") -> None:
        """`engine`: how it is run, see `rlsdk.engines`."""
        super().__init__()
        self.shares_encoder = actor.encoder is critic.encoder
        self.encoder, self.memory, self.body, self.head = actor.encoder, actor.memory, actor.body, head
        self.critic_encoder = None if self.shares_encoder else critic.encoder
        self.critic_memory, self.critic_body, self.value = critic.memory, critic.body, value
        self.resample_every: int | None = None
        self.use_masks = True
        self.sde = head.noise if isinstance(head, SdeHead) else None
        self.engine = engine
        self.mode_matters = self.recurrent = False
        """`recurrent`: whether steps must be learnt from in order."""
        self._look()
        self._acting = Fitted(self._fit, self, ("encoder", "memory", "body", "head"))
        self._whole = Fitted(self._fit, self)

    def _look(self) -> None:
        """Properties of the modules that every step needs."""
        self.mode_matters = mode_matters(self.encoder, self.critic_encoder, self.body, self.critic_body)
        self.recurrent = bool(cast("Memory", self.memory).initial(1))
        if isinstance(self.head, SdeHead):
            self.sde = self.head.noise

    def _fit(self, hooked: bool) -> Sides | None:
        """The dense layers by hand, where there are no other layers and no hooks."""
        self._look()
        return None if hooked or self.engine == "autograd" else sides_of(self, NUMPY)

    def refit(self) -> None:
        """Look at the modules again if some were replaced; updates do so before they learn."""
        self._whole()

    @property
    def _memory(self) -> Memory:
        return cast("Memory", self.memory)

    @property
    def actor_parameters(self) -> list[nn.Parameter]:
        """What the action distribution depends on."""
        parts = [self.encoder, self.memory, self.body, self.head]
        return [p for part in parts if part is not None for p in part.parameters()]

    def reconfigure(self, config: Any) -> None:
        """Take the period of noise matrices from new settings: `sde_sample_freq`, or a rollout."""
        every = getattr(config, "sde_sample_freq", -1)
        self.resample_every = every if every > 0 else None

    # --- acting ------------------------------------------------------------------------------------------------------

    def initial_carry(self, batch: int) -> ActorCriticCarry:
        critic = () if self.critic_memory is None else cast("Memory", self.critic_memory).initial(batch)
        return ActorCriticCarry(self._memory.initial(batch), critic, self.sde.initial(batch) if self.sde else ())

    @property
    def begin_rollout(self) -> Callable[[ActorCriticCarry], ActorCriticCarry] | None:
        """With gSDE: makes the carry to begin a rollout with, see `Policy`."""
        if self.sde is None:
            return None
        return lambda carry: ActorCriticCarry(
            carry.actor, carry.critic, StateDependentNoise.begin_rollout(cast("NoiseMatrices", carry.noise))
        )

    def act(
        self, observation: Observation, carry: ActorCriticCarry, *, deterministic: bool, generator: Generator
    ) -> Act[ActorCriticCarry, Estimates]:
        acting, first = self._acting, observation.is_first
        if acting.structure.changed():
            acting.fit()
        sides = acting.kernel
        if self.mode_matters:
            self.eval()
        if sides is not None and first.shape[0] <= NUMPY_ACTING_ROWS and first.is_cpu:
            return self._act_by_hand(sides, observation, carry, deterministic, generator)
        self.refit()
        return self._act(observation, carry, deterministic, generator)

    @torch.no_grad()
    def _act(
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
            action = cast("SdeHead", self.head).explore(latent, noise.matrix)
        value = self.value(self.critic_body(latent_value)).squeeze(-1)
        extras = Estimates(distribution.log_prob(action), value, (carry.actor, carry.critic))
        environment = cast("ActionHead", self.head).to_environment(action)
        return Act(environment, ActorCriticCarry(actor, critic, noise), extras)

    def _act_by_hand(
        self, sides: Sides, observation: Observation, carry: ActorCriticCarry, deterministic: bool, generator: Generator
    ) -> Act[ActorCriticCarry, Estimates]:
        """The action alone, for dense layers and few rows, where calling torch would cost more than the arithmetic."""
        features = (observation.features if sides.vectors else self.encoder(observation.features)).numpy()
        raw = sides.actor(features)
        head, mask = sides.head, observation.action_mask if self.use_masks else None
        if sides.draw is not None and not deterministic:
            action = torch.from_numpy(sides.draw(raw, mask, generator))
        else:
            with torch.no_grad():
                distribution = head.of(torch.from_numpy(raw), mask)
                action = distribution.mode() if deterministic else distribution.sample(generator)
        return Act(head.to_environment(action), carry, DEFERRED)

    @torch.no_grad()
    def estimates(self, steps: StepData[Estimates]) -> Estimates:
        """Of steps [T, B], with the weights they were acted with: those found while acting, or all of them now."""
        sides, extras = self._whole(), steps.extras
        if extras.value is not None:
            return extras
        lead = steps.reward.shape
        seen = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)
        taken = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.action)
        if sides is None:  # layers were replaced, or hooks added, after the steps were acted
            distribution, values = self.evaluate(seen, ((), ()), seen.is_first)
            return Estimates(distribution.log_prob(self.internal(taken)).view(lead), values.view(lead), extras.memory)
        features = self.encoder(seen.features).numpy()
        mask = seen.action_mask if self.use_masks else None
        distribution = cast("Any", self.head).of(torch.from_numpy(sides.actor(features)), mask)
        value = torch.from_numpy(sides.critic(features)[:, 0])
        return Estimates(distribution.log_prob(self.internal(taken)).view(lead), value.view(lead), extras.memory)

    def _encoded(self, features: Any) -> tuple[Tensor, Tensor]:
        """(for the actor, for the critic)."""
        encoded = self.encoder(features)
        return encoded, encoded if self.critic_encoder is None else self.critic_encoder(features)

    def _critic_step(self, features: Tensor, latent: Tensor, state: States, is_first: Tensor) -> tuple[Tensor, States]:
        if self.critic_memory is None:
            return latent.detach(), ()
        return cast("Memory", self.critic_memory).step(features, state, is_first)

    # --- learning ----------------------------------------------------------------------------------------------------

    def evaluate(
        self, observation: Observation, memory: tuple[States, States], starts: Tensor
    ) -> tuple[Distribution, Tensor]:
        """(action distribution, values [N]) of N steps, in order where there is a memory; see `Memory.sequence`."""
        features, others = self._encoded(observation.features)
        latent = self._memory.sequence(features, memory[0], observation.is_first, starts)
        if self.critic_memory is None:
            latent_value = latent.detach()
        else:
            critic = cast("Memory", self.critic_memory)
            latent_value = critic.sequence(others, memory[1], observation.is_first, starts)
        mask = observation.action_mask if self.use_masks else None
        distribution: Distribution = self.head(self.body(latent), mask)
        return distribution, self.value(self.critic_body(latent_value)).squeeze(-1)

    def values_after(self, observation: Observation, memory: tuple[States, States]) -> Tensor:
        """V [N] of observations seen with `memory` (the carry after the step before them)."""
        features, others = self._encoded(observation.features)
        latent = features
        if self.critic_memory is None:
            latent, _ = self._memory.step(features, memory[0], observation.is_first)
        latent, _ = self._critic_step(others, latent, memory[1], observation.is_first)
        value: Tensor = self.value(self.critic_body(latent)).squeeze(-1)
        return value

    def internal(self, action: Any) -> Any:
        """Actions in environment units as the distribution knows them."""
        return cast("ActionHead", self.head).from_environment(action)

    def action_std(self) -> Tensor | None:
        """Mean standard deviation of Box actions, 0-d; None where there are none."""
        if self.sde is not None:
            return self.sde.std().detach().mean()
        own = getattr(self.head, "log_std", None)
        return None if own is None else own.detach().exp().mean()

    # --- for users -----------------------------------------------------------------------------------------------------

    def get_distribution(
        self, observation: Any, memory: Any = None, *, action_masks: Any = None, episode_starts: Any = None
    ) -> Distribution:
        """The action distribution, over internal actions.

        Args:
            observation: a record, or observations of the agent's space in numpy or torch, one or [N, ..].
            memory: the carry that `predict` returned; None: episodes start here. Arrays are taken for `action_masks`.
            action_masks: bool [A] or [N, A], True where allowed.
            episode_starts: bool [N], True where an episode has just begun; None: everywhere.

        Raises:
            ObservationError: outside the space. MaskError: an unusable mask.
        """
        seen, states = self._asked(observation, memory, action_masks, episode_starts)
        starts = torch.ones(len(seen.is_first), dtype=torch.bool, device=seen.is_first.device)
        return self.evaluate(seen, states, starts)[0]

    distribution_of = get_distribution

    def predict_values(
        self, observation: Any, memory: Any = None, *, action_masks: Any = None, episode_starts: Any = None
    ) -> Tensor:
        """V [N]; arguments and errors as `get_distribution`."""
        return self.values_after(*self._asked(observation, memory, action_masks, episode_starts))

    def evaluate_actions(
        self, observation: Any, action: Any, memory: Any = None, *, action_masks: Any = None, episode_starts: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(values, log-probabilities, entropies), each [N], of actions in environment units, numpy or torch; other arguments
        and errors as `get_distribution`."""
        seen, states = self._asked(observation, memory, action_masks, episode_starts)
        distribution = self.get_distribution(seen, states)
        taken = action if self.reader is None else self.reader.action(action)
        return self.values_after(seen, states), distribution.log_prob(self.internal(taken)), distribution.entropy()

    def _asked(
        self, observation: Any, memory: Any, action_masks: Any, episode_starts: Any
    ) -> tuple[Observation, tuple[States, States]]:
        if memory is not None and not isinstance(memory, tuple | ActorCriticCarry):
            memory, action_masks = None, memory
        if self.reader is not None:
            starts = episode_starts if memory is None or episode_starts is not None else False
            observation = self.reader.observation(observation, action_masks, starts)
        carry = self.initial_carry(len(observation.is_first)) if memory is None else memory
        return observation, carry if isinstance(carry, tuple) else (carry.actor, carry.critic)
