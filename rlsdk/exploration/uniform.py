"""Uniformly random actions, and a warm-up that plays them before the policy takes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk.exploration.extras import extras_of_other_action
from rlsdk.exploration.uniform_actions import allowed_actions, uniform_actions, uniform_log_prob
from rlsdk.interfaces import Policy, State
from rlsdk.records import Act, Observation
from rlsdk.spaces import Space


@dataclass(frozen=True, slots=True, eq=False)
class WarmUpCarry:
    """Actions taken so far over all environments (int64, 0-d, on the CPU), and the inner policy's carry."""

    taken: Tensor
    inner: object


class UniformWarmUp:
    """Plays `steps` uniformly random actions, counted over all environments, then hands over to `inner`.

    Extras are those of `inner`, but for the probability of its action: see `rlsdk.exploration.extras_of_other_action`.
    """

    def __init__(self, inner: Policy[Any, Any], space: Space, steps: int, num_envs: int | None = None) -> None:
        """`num_envs`: environments of all groups, as it acts for one group at a time; None: there is one group."""
        self.inner, self.space, self.steps, self.num_envs = inner, space, steps, num_envs

    def initial_carry(self, batch: int) -> WarmUpCarry:
        return WarmUpCarry(torch.zeros((), dtype=torch.int64), self.inner.initial_carry(batch))

    @property
    def begin_rollout(self) -> Callable[[WarmUpCarry], WarmUpCarry] | None:
        """That of the inner policy, see `Policy`."""
        begin = getattr(self.inner, "begin_rollout", None)
        return None if begin is None else lambda carry: WarmUpCarry(carry.taken, begin(carry.inner))

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: WarmUpCarry, *, deterministic: bool, generator: Generator
    ) -> Act[WarmUpCarry, Any]:
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic or int(carry.taken) >= self.steps:
            return Act(act.action, WarmUpCarry(carry.taken, act.carry), act.extras)
        batch, mask = observation.is_first.shape[0], observation.action_mask
        random = allowed_actions(self.space, mask, generator) if mask is not None else None
        if random is None:
            random = uniform_actions(self.space, batch, generator)
        extras = act.extras
        if not (isinstance(extras, tuple) and not extras):
            extras = extras_of_other_action(extras, uniform_log_prob(self.space, mask, random))
        return Act(random, WarmUpCarry(carry.taken + (self.num_envs or batch), act.carry), extras)

    def state_dict(self) -> State:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: object) -> None:
        self.inner.load_state_dict(state)
