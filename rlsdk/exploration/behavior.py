"""The policies that collect experience: noise on actions, and uniformly random actions at first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.distributions.categorical import Categorical, MultiCategorical
from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.interfaces import BuildContext, Policy, PolicyAbilities, State
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.networks.action_heads import ActionScale
from rlsdk.records import Act, Features, Observation
from rlsdk.settings.action_noise import ActionNoise
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, choices_of, map_leaves

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class ExplorationPolicy(Generic[CarryT, ExtrasT]):
    """What exploration leaves to the policy `inner`: the state, and what happens to its carry."""

    inner: Policy[CarryT, ExtrasT]

    @property
    def begin_rollout(self) -> Callable[[Any], Any] | None:
        """The function `begin_rollout` of the inner policy, see `PolicyAbilities`; None where it has none."""
        begin = getattr(self.inner, "begin_rollout", None)
        return None if begin is None else lambda carry: replace(carry, inner=begin(carry.inner))

    @property
    def action_played(self) -> Callable[[Any, Tensor], Any] | None:
        """`action_played` (carry, actions [B, ..]) of the inner policy, see `PolicyAbilities`; None without one."""
        played = getattr(self.inner, "action_played", None)
        return None if played is None else lambda carry, action: replace(carry, inner=played(carry.inner, action))

    def state_dict(self) -> State:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: object) -> None:
        self.inner.load_state_dict(state)


@dataclass(frozen=True, slots=True, eq=False)
class NoiseCarry(Generic[CarryT]):
    """The carry of a `NoisyPolicy`: the noise state of each environment, float32 [B, A], and the inner policy's carry."""

    noise: Tensor
    inner: CarryT


class NoisyPolicy(ExplorationPolicy[CarryT, ExtrasT]):
    """Scales the actions of the policy `inner` to [-1, 1], adds noise, and clips them to [-1, 1].

    Deterministic actions get no noise.
    """

    def __init__(self, inner: Policy[CarryT, ExtrasT], noise: ActionNoise, scale: ActionScale) -> None:
        """Raises SettingsError: a parameter of the noise has neither one number nor one number per action dimension."""
        self.inner, self.noise, self.scale = inner, noise, scale
        self._remembers = getattr(inner, "action_played", None) is not None
        for name in ("mean", "sigma", "initial_noise"):
            # checked here, because only the policy knows the number of dimensions
            numbers = getattr(noise, name, None)
            if numbers is not None and len(numbers) not in (1, scale.size):
                raise SettingsError(
                    f"action_noise: {name} has {len(numbers)} numbers, actions have {scale.size} dimensions; give one number,"
                    f" or {scale.size}"
                )

    def initial_carry(self, batch: int) -> NoiseCarry[CarryT]:
        zeros = torch.zeros(batch, self.scale.size, device=self.scale.low.device)
        return NoiseCarry(zeros, self.inner.initial_carry(batch))

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: NoiseCarry[CarryT], *, deterministic: bool, generator: Generator
    ) -> Act[NoiseCarry[CarryT], object]:
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic:
            return Act(act.action, NoiseCarry(carry.noise, act.carry), act.extras)
        # noise with a memory (Ornstein-Uhlenbeck) starts again with every episode
        noise, state = self.noise.step(self.noise.started(carry.noise, observation.is_first), generator)
        # in unit actions, so that one sigma fits dimensions of every width
        unit = (self.scale.to_unit(act.action) + noise).clamp(-1.0, 1.0)
        extras: object = act.extras
        if not (isinstance(extras, tuple) and not extras):
            # the density of a clipped, noisy action is unknown, and a wrong one would bias importance weights
            extras = extras_of_other_action(extras, None)
        action, inner = self.scale.to_environment(unit), act.carry
        if self._remembers:
            inner = self.inner.action_played(inner, action)  # type: ignore[attr-defined]
        return Act(action, NoiseCarry(state, inner), extras)

    def reconfigure(self, config: ContinuousOffPolicyConfig) -> None:
        """Take the noise from new settings, and pass the settings on to the inner policy.

        Raises:
            UsageError: the new `action_noise` is None. An agent without noise needs another policy.
        """
        if config.action_noise is None:
            raise UsageError("action_noise cannot end while the agent lives; give noise with sigma = 0")
        self.noise = config.action_noise
        if (inner := ability(self.inner, PolicyAbilities, "reconfigure")) is not None:
            inner.reconfigure(config)


@dataclass(frozen=True, slots=True, eq=False)
class WarmUpCarry(Generic[CarryT]):
    """The carry of a `UniformWarmUp`: the number of actions so far, and the inner policy's carry.

    `taken` counts the actions of all environments (int64, 0-d, on the CPU).
    """

    taken: Tensor
    inner: CarryT


class UniformWarmUp(ExplorationPolicy[CarryT, ExtrasT]):
    """Plays `steps` uniformly random actions, counted over all environments, and then the actions of `inner`.

    Extras are those of `inner`. `extras_of_other_action` replaces the log-probability in them.
    """

    def __init__(self, inner: Policy[CarryT, ExtrasT], space: Space, steps: int, num_envs: int | None = None) -> None:
        """`num_envs`: the number of environments in all groups, because one call acts for one group; None: one group."""
        self.inner, self.space, self.steps, self.num_envs = inner, space, steps, num_envs
        given = shortcut(inner, PolicyAbilities, "act_in_place", "act")
        self._remembers = getattr(inner, "action_played", None) is not None
        self._in_place = None if given is None else given.act_in_place

    def initial_carry(self, batch: int) -> WarmUpCarry[CarryT]:
        return WarmUpCarry(torch.zeros((), dtype=torch.int64), self.inner.initial_carry(batch))

    def act(
        self, observation: Observation, carry: WarmUpCarry[CarryT], *, deterministic: bool, generator: Generator
    ) -> Act[WarmUpCarry[CarryT], object]:
        # the policy acts during the warm-up too: a memory has to see every observation
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic or int(carry.taken) >= self.steps:
            return Act(act.action, WarmUpCarry(carry.taken, act.carry), act.extras)
        batch, mask = observation.is_first.shape[0], observation.action_mask
        random = allowed_actions(self.space, mask, generator) if mask is not None else None
        if random is None:
            random = uniform_actions(self.space, batch, generator)
        extras: object = act.extras
        if not (isinstance(extras, tuple) and not extras):
            extras = extras_of_other_action(extras, uniform_log_prob(self.space, mask, random))
        inner = act.carry
        if self._remembers:  # the carry holds the policy's own action, which is not the one that is played
            inner = self.inner.action_played(inner, random)  # type: ignore[attr-defined]
        # counted over all groups, as `learning_starts` is, although this call acts for one
        return Act(random, WarmUpCarry(carry.taken + (self.num_envs or batch), inner), extras)

    def act_in_place(
        self, observation: Observation, carry: WarmUpCarry[CarryT], generator: Generator, /
    ) -> tuple[Callable[[int], object], Tensor, ExtrasT] | None:
        """After the random actions, let `inner` prepare acting on rows [T, B, ..]; see `rlsdk.interfaces.PolicyAbilities`."""
        # the warm-up counts its steps in the carry, which stays the same in a rollout that is written in place
        if self._in_place is None or int(carry.taken) < self.steps:
            return None
        return self._in_place(observation, carry.inner, generator)

    def reconfigure(self, config: object) -> None:
        """Take the number of steps from `learning_starts`, if the algorithm has this setting, and pass the settings on."""
        self.steps = getattr(config, "learning_starts", self.steps)
        if (inner := ability(self.inner, PolicyAbilities, "reconfigure")) is not None:
            inner.reconfigure(config)


Behavior = (
    Policy[CarryT, ExtrasT]
    | Policy[WarmUpCarry[CarryT], object]
    | Policy[NoiseCarry[CarryT], object]
    | Policy[NoiseCarry[WarmUpCarry[CarryT]], object]
)
"""A policy, with or without warm-up and action noise."""


def noisy_behavior(
    policy: Policy[CarryT, ExtrasT], context: BuildContext, config: ContinuousOffPolicyConfig, *, warm_up: bool = True
) -> Behavior[CarryT, ExtrasT]:
    """The policy that collects experience: `policy` after a warm-up of uniformly random actions, with action noise.

    `warm_up=False` leaves out the warm-up. The noise is that of the setting `action_noise`; None adds no noise. It is also
    added to the actions of the warm-up.

    Raises:
        SettingsError: the noise has neither one number nor one number per action dimension.
    """
    space = context.action_space
    assert isinstance(space, Box)
    noise, scale = config.action_noise, ActionScale(space)
    if not warm_up:
        return policy if noise is None else NoisyPolicy(policy, noise, scale)
    warming = UniformWarmUp(policy, space, config.learning_starts, context.num_envs)
    return warming if noise is None else NoisyPolicy(warming, noise, scale)


LOG_PROB = "log_prob"


def extras_of_other_action(extras: object, log_prob: Tensor | None) -> object:
    """The extras with their entry `log_prob` replaced by the log-probability [B] of the action that is played.

    Extras that have no entry `log_prob`, or None as this entry, are returned unchanged.

    Args:
        extras: a dataclass or a mapping.
        log_prob: the log-probability [B] of the action that is played; None where it is unknown.

    Raises:
        PluginError: the extras have a log-probability, but that of the action played is unknown.
    """
    # by name, because extras are records or mappings of the plugin
    held = _entries(extras).get(LOG_PROB)
    if held is None:
        return extras
    if log_prob is None:
        raise PluginError(
            "the policy's extras hold log_prob, the log-probability of the policy's action, but action noise changes the"
            " action; leave action_noise out, or let the policy draw its noise itself"
        )
    if isinstance(extras, Mapping):
        return {**extras, LOG_PROB: log_prob}
    assert is_dataclass(extras)
    assert not isinstance(extras, type)
    return replace(extras, **{LOG_PROB: log_prob})


def _entries(extras: object) -> Mapping[str, object]:
    if isinstance(extras, Mapping):
        return extras
    if is_dataclass(extras):
        return {field.name: getattr(extras, field.name) for field in fields(extras)}
    return {}


def uniform_actions(space: Space, batch: int, generator: Generator) -> Tensor:
    """`batch` actions sampled uniformly from a space, in environment units: [B] for Discrete, [B, *shape] otherwise.

    Raises:
        TypeError: the space is nested, or a Box without bounds.
    """
    device = generator.device
    if isinstance(space, Discrete):
        return torch.randint(space.n, (batch,), generator=generator, device=device) + space.start
    if isinstance(space, MultiDiscrete):
        share = torch.rand(batch, len(space.nvec), generator=generator, device=device)
        sizes = torch.tensor(space.nvec, device=device)
        # a share just below 1 may round up to the size
        drawn = (share * sizes).long().minimum(sizes - 1)
        return drawn + torch.tensor(space.start, device=device)
    if isinstance(space, MultiBinary):
        return torch.randint(2, (batch, *space.shape), generator=generator, device=device).to(torch.int8)
    if isinstance(space, Box) and space.is_bounded:
        low = torch.tensor(np.asarray(space.low, dtype=np.float32), device=device)
        high = torch.tensor(np.asarray(space.high, dtype=np.float32), device=device)
        share = torch.rand((batch, *space.shape), generator=generator, device=device)
        # clamped, because lerp may round past the bounds
        return torch.lerp(low, high, share).clamp(low, high)
    raise TypeError(f"no uniform distribution over {space}")


def allowed_actions(space: Space, mask: Tensor, generator: Generator) -> Tensor | None:
    """Actions sampled uniformly from those that `mask` bool [B, A] allows; None for a Box or a nested space."""
    if isinstance(space, Discrete):
        return Categorical.of(torch.zeros(mask.shape, device=mask.device), mask).sample(generator) + space.start
    if isinstance(space, MultiDiscrete):
        flat = MultiCategorical.of(torch.zeros(mask.shape, device=mask.device), space.nvec, mask)
        return flat.sample(generator) + torch.tensor(space.start, device=mask.device)
    if isinstance(space, MultiBinary):
        flat = MultiCategorical.of(torch.zeros(mask.shape, device=mask.device), choices_of(space), mask)
        return flat.sample(generator).reshape(-1, *space.shape).to(torch.int8)
    return None


def random_actions(space: Space, batch: int, mask: Tensor | None, generator: Generator) -> Features:
    """`batch` actions [B, ..], nested as the space, sampled uniformly from those that `mask` bool [B, A] allows; None = all.

    A Box without finite bounds has no uniform distribution. Its actions are standard normal, clipped to the bounds it has.
    """
    rest = mask

    def sampled(_: str, leaf: Space) -> Tensor:
        """The actions of one leaf, [B, *shape]. A mask has the entries of the leaves one after the other."""
        nonlocal rest
        if isinstance(leaf, Box) and not leaf.is_bounded:
            low, high = (torch.tensor(np.asarray(bound, np.float32)) for bound in (leaf.low, leaf.high))
            return torch.randn((batch, *leaf.shape), generator=generator).clamp(low, high)
        width = sum(choices_of(leaf))
        if rest is None or not width:
            return uniform_actions(leaf, batch, generator)
        # a mask has the entries of the leaves one after another, in the order of this walk
        part, rest = rest[:, :width], rest[:, width:]
        allowed = allowed_actions(leaf, part, generator)
        assert allowed is not None  # a leaf with choices has masks
        return allowed

    return map_leaves(space, sampled, path="action")


def uniform_log_prob(space: Space, mask: Tensor | None, actions: Tensor) -> Tensor:
    """The log-probability float32 [B] of `actions` [B, ..] that were sampled uniformly.

    They were sampled from the actions that `mask` bool [B, A] allows; None = all. For a Box it is a log-density in the units of
    the space.
    """
    batch, device = len(actions), actions.device
    if mask is not None and isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        counts = torch.stack([part.sum(-1) for part in torch.split(mask, list(choices_of(space)), -1)], -1)
        return -counts.float().log().sum(-1)
    if isinstance(space, Box):
        width = np.asarray(space.high, np.float64) - np.asarray(space.low, np.float64)
        # dimensions of width 0 have one possible action, whose log-probability is 0
        total = float(np.log(width[width > 0.0]).sum())
    else:
        total = float(np.log(np.asarray(choices_of(space), np.float64)).sum())
    return torch.full((batch,), -total, device=device)
