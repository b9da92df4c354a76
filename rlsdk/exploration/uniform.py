"""A policy that plays uniformly random actions at first, and the actions of another policy afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.exploration.extras import extras_of_other_action
from rlsdk.exploration.uniform_actions import allowed_actions, uniform_actions, uniform_log_prob
from rlsdk.interfaces import ActsInPlace, Policy, Reconfigurable, State
from rlsdk.interfaces.abilities import shortcut
from rlsdk.records import Act, Observation
from rlsdk.spaces import Space

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@dataclass(frozen=True, slots=True, eq=False)
class WarmUpCarry(Generic[CarryT]):
    """The carry of a `UniformWarmUp`: the number of actions so far, and the inner policy's carry.

    `taken` counts the actions of all environments (int64, 0-d, on the CPU).
    """

    taken: Tensor
    inner: CarryT


class UniformWarmUp(Generic[CarryT, ExtrasT]):
    """Plays `steps` uniformly random actions, counted over all environments, and then the actions of `inner`.

    Extras are those of `inner`. `rlsdk.exploration.extras_of_other_action` replaces the log-probability in them.
    """

    def __init__(self, inner: Policy[CarryT, ExtrasT], space: Space, steps: int, num_envs: int | None = None) -> None:
        """`num_envs`: the number of environments in all groups, because one call acts for one group; None: one group."""
        self.inner, self.space, self.steps, self.num_envs = inner, space, steps, num_envs
        given = shortcut(inner, ActsInPlace, "act")
        self._remembers = getattr(inner, "action_played", None) is not None
        self._in_place = None if given is None else given.act_in_place

    def initial_carry(self, batch: int) -> WarmUpCarry[CarryT]:
        return WarmUpCarry(torch.zeros((), dtype=torch.int64), self.inner.initial_carry(batch))

    @property
    def begin_rollout(self) -> Callable[[WarmUpCarry[CarryT]], WarmUpCarry[CarryT]] | None:
        """The function `begin_rollout` of the inner policy, see `Policy`; None where it has none."""
        begin = getattr(self.inner, "begin_rollout", None)
        return None if begin is None else lambda carry: WarmUpCarry(carry.taken, begin(carry.inner))

    @property
    def action_played(self) -> Callable[[WarmUpCarry[CarryT], Tensor], WarmUpCarry[CarryT]] | None:
        """`action_played` (carry, actions [B, ..]) of the inner policy, see `RemembersActions`; None without one."""
        played = getattr(self.inner, "action_played", None)
        return None if played is None else lambda carry, action: WarmUpCarry(carry.taken, played(carry.inner, action))

    def act(
        self, observation: Observation, carry: WarmUpCarry[CarryT], *, deterministic: bool, generator: Generator
    ) -> Act[WarmUpCarry[CarryT], object]:
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
        return Act(random, WarmUpCarry(carry.taken + (self.num_envs or batch), inner), extras)

    def act_in_place(
        self, observation: Observation, carry: WarmUpCarry[CarryT], generator: Generator, /
    ) -> tuple[Callable[[int], object], Tensor, ExtrasT] | None:
        """After the random actions, let `inner` prepare acting on rows [T, B, ..]; see `rlsdk.interfaces.ActsInPlace`."""
        if self._in_place is None or int(carry.taken) < self.steps:
            return None
        return self._in_place(observation, carry.inner, generator)

    def reconfigure(self, config: object) -> None:
        """Take the number of steps from `learning_starts`, if the algorithm has this setting, and pass the settings on."""
        self.steps = getattr(config, "learning_starts", self.steps)
        if isinstance(self.inner, Reconfigurable):
            self.inner.reconfigure(config)

    def state_dict(self) -> State:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: object) -> None:
        self.inner.load_state_dict(state)
