"""The clause about policies that write actions directly to the storage of a rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk.agent import Agent
from rlsdk.interfaces import Policy, PolicyAbilities, shortcut
from rlsdk.records import Act, Observation
from rlsdk.tree import leaves, map_tensors, stack
from rlsdk_testing.acting import acting_policies, observations
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject

STEPS, ROWS = 16, 3


@clause(
    "policy.in-place-is-act",
    "If a policy has act_in_place(), it writes the actions that act() returns, takes the same numbers from the generator, and"
    " has the same extras. act() does not change the recurrent state then.",
    "act_in_place(): compute the actions of step t when the returned function is called, because later rows are"
    " not filled before. Draw random numbers as act() does. Return None if act() changes the recurrent state. The storage may"
    " hold several rollouts: the first step of the second one is not step 0.",
)
def in_place_is_act(subject: Subject) -> None:
    tried = [_compare(what, agent) for what, agent in subject.agents()]
    if not any(tried):
        raise NotApplicable("its policies do not write actions in place")


def _compare(what: str, agent: Agent) -> bool:
    """Compare `act_in_place` with `act`; return whether a policy of the agent acted in place."""
    seen = [observations(agent, ROWS, seed) for seed in range(STEPS)]
    if not all(isinstance(observation.features, Tensor) for observation in seen):
        return False
    tried = False
    for name, policy in acting_policies(agent):
        given = shortcut(policy, PolicyAbilities, "act_in_place", "act")
        # an override is called instead
        given = given and shortcut(given, PolicyAbilities, "act_in_place", "rollout_act")
        if given is not None and (prepare := given.act_in_place) is not None:
            tried |= _acts_alike(f"{what}: {name.removesuffix('act')}act_in_place()", prepare, policy, seen)
    return tried


def _acts_alike(
    what: str, prepare: Callable[..., Any], policy: Policy[object, object], seen: list[Observation]
) -> bool:
    """Compare two rollouts in one storage with `act`; return False if the policy does not act in place on them."""
    storage, carry = map_tensors(torch.zeros_like, stack(seen)), policy.initial_carry(ROWS)
    one, two = Generator().manual_seed(1), Generator().manual_seed(1)
    for rows in (range(STEPS // 2), range(STEPS // 2, STEPS)):
        prepared = prepare(storage, carry, one)
        if prepared is None:
            return rows.start > 0
        act, action, extras = prepared
        expected: list[Act[object, object]] = []
        for t in rows:
            for row, leaf in zip(leaves(storage), leaves(seen[t]), strict=True):
                row[t] = leaf
            act(t)
            expected.append(policy.act(seen[t], carry, deterministic=False, generator=two))
        found: Any = map_tensors(lambda leaf, rows=rows: leaf[rows.start : rows.stop], (action, extras))
        _compare_rollout(what, found, expected)
        require(
            torch.equal(one.get_state(), two.get_state()), f"{what} takes other numbers from the generator than act()"
        )
        unchanged = all(map(_near, leaves(carry), leaves(expected[-1].carry)))
        require(unchanged, f"{what} acts in place, but act() changes the carry")
    return True


def _compare_rollout(what: str, found: tuple[Tensor, object], expected: list[Act[object, object]]) -> None:
    """Compare actions and extras [T, B, ..] with the results of `act`."""
    (action, extras), actions = found, torch.stack([each.action for each in expected])
    require(action.shape == actions.shape, f"{what} has actions {list(action.shape)}, act() {list(actions.shape)}")
    require(_near(action, actions), f"{what} wrote the actions {action.tolist()}, act() returns {actions.tolist()}")
    own, returned = leaves(extras), leaves(stack([each.extras for each in expected]))
    require(len(own) == len(returned) and all(map(_near, own, returned)), f"{what} has other extras than act()")


def _near(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.allclose(one.double(), two.double(), atol=1e-5)
