"""Clauses of learning actions of every kind that the manifest lists."""

from __future__ import annotations

from functools import partial

import numpy as np

from rlsdk.agent import Agent
from rlsdk.records import Observation
from rlsdk.testing.kit import clause
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.patterns import SPACES, GymSpace, PatternEnv, action_with, misses, pattern
from rlsdk.testing.subject import Subject
from rlsdk.testing.toys import Toy, greedy_actions, require_learnt

BOUND = 0.8
"""Of 1 minus the distance of the worst part of the action from its place. What is right for one of the two patterns has at most
0.5 for the other; the middle of a Box has 0.75; correct algorithms of ours reach 0.9 to 1."""


@clause(
    "learns.bandit",
    "the action that pays in a task of one state and one step is learnt, for every kind of action, whichever it is, and every"
    " action that is played lies in the space",
    "update(): look at the sign of the policy's loss, at the reward that an action gets, and at the units of actions: choices"
    " count from `start`, Box actions from `low` to `high`, and each choice has its own columns",
)
def bandit(subject: Subject) -> None:
    if "Box" not in subject.manifest.observations:
        raise NotApplicable("the task has vectors as observations, which the plugin does not support")
    for kind in subject.manifest.actions:
        for first in (True, False):
            space = SPACES[kind]
            places = pattern(space, first)
            wanted = action_with(space, places)
            env, score = partial(PatternEnv, space, places), partial(_score, space, places)
            expected = f"of {kind} actions {wanted!r} pays 1, others the less the farther they are from it, in {space}"
            right = partial(_right, wanted)
            require_learnt(subject, Toy("bandit", env, score, BOUND, expected, right=right))


def _right(wanted: object, _: Observation) -> object:
    return wanted


def _score(space: GymSpace, places: list[float], agent: Agent) -> float:
    """1 minus the distance of the worst part of the action from its place."""
    (action,) = greedy_actions(agent, np.ones((1, 1), np.float32))
    return 1.0 - float(misses(space, places, action).max())
