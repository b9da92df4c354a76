"""Collects a rollout with a policy in environments. Only `stepwise.py` and `in_place.py`, which it calls, let policies act in
environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Generator

from rlsdk.interfaces import ActsForRollouts, FillsExtras, Policy, VectorEnv
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.records import Act, ActingState, Rollout
from rlsdk.training.in_place import in_place_of
from rlsdk.training.stepwise import act_and_step

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@torch.no_grad()
def collect(
    env: VectorEnv,
    policy: Policy[CarryT, ExtrasT],
    acting: ActingState[CarryT],
    length: int,
    *,
    generator: Generator,
    on_step: Callable[[int], object] | None = None,
) -> Rollout[CarryT, ExtrasT]:
    """Collect `length` steps of every environment, beginning with `acting`, with complete extras; see `act_and_step`.

    The contents of the rollout do not depend on the optional abilities of policy and environments.
    """
    filling = ability(policy, FillsExtras)
    fill = None if filling is None else filling.estimates
    in_place = in_place_of(policy, env, generator)
    rollout = None if in_place is None else in_place.collect(acting, length, on_step=on_step, fill=fill)
    if rollout is None:
        act_on = partial(rollout_act(policy), deterministic=False, generator=generator)
        rollout = act_and_step(env, act_on, acting, length, on_step=on_step, fill=fill)
    return rollout


def rollout_act(policy: Policy[CarryT, ExtrasT]) -> Callable[..., Act[CarryT, ExtrasT]]:
    """Return the function that acts during one rollout; see `rlsdk.interfaces.ActsForRollouts`."""
    preparing = shortcut(policy, ActsForRollouts, "act")
    return policy.act if preparing is None else preparing.rollout_act()
