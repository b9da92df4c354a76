"""Clauses of actions of every kind that the manifest lists: learning them, and playing those of candidates."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlsdk.agent import Agent
from rlsdk.environments.toy import AnySpaceEnv, position_in
from rlsdk.records import Observation
from rlsdk.testing.acting import act_on, observations
from rlsdk.testing.kit import clause, require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.patterns import SPACES, GymSpace, PatternEnv, action_with, misses, parts_of, pattern
from rlsdk.testing.subject import OBSERVATIONS, Subject
from rlsdk.testing.toys import Toy, greedy_actions, require_learnt
from rlsdk.training import PopulationPlan

BOUND = 0.8
"""Of 1 minus the distance of the worst part of the action from its place. What is right for one of the two patterns has at most
0.5 for the other; the middle of a Box has 0.75; correct algorithms of ours reach 0.9 to 1."""
UPDATES = 500
"""Ours need 300 at most. Algorithms that learn some kinds of action only are tried for long with the others."""
ORDERS = {"Dict": (True,), "Tuple": (False,)}
"""Whether the first part's place is low: once where the parts are of kinds that are learnt alone, both ways elsewhere."""


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
        for first in ORDERS.get(kind, (True, False)):
            space = SPACES[kind]
            places = pattern(space, first)
            wanted = action_with(space, places)
            env, score = partial(PatternEnv, space, places), partial(_score, space, places)
            expected = f"of {kind} actions {wanted!r} pays 1, others the less the farther they are from it, in {space}"
            right = partial(_right, wanted)
            require_learnt(subject, Toy("bandit", env, score, BOUND, expected, right=right, updates=UPDATES))


def _right(wanted: object, _: Observation) -> object:
    return wanted


def _score(space: GymSpace, places: list[float], agent: Agent) -> float:
    """1 minus the distance of the worst part of the action from its place."""
    (action,) = greedy_actions(agent, np.ones((1, 1), np.float32))
    return 1.0 - float(misses(space, places, action).max())


CANDIDATES, ROUNDING = 32, 1e-5
"""Random candidates; and how far their actions may be from the policy's, as a share of the space."""


@clause(
    "population.plays-the-policy",
    "A candidate plays what the policy answers that has the candidate's parameters, for every kind of action and every policy.",
    "In the function that acts for candidates decode outputs as the policy's act() does: the same order of parameters (that of"
    " torch.nn.utils.parameters_to_vector), the same activations, and actions in the units of the space",
)
def plays_the_policy(subject: Subject) -> None:
    if not isinstance(subject.agent().parts.plan, PopulationPlan):
        raise NotApplicable("the algorithm is not a population method")
    for name, kind in product(subject.spec.policies, subject.manifest.actions):
        agent = subject.agent(AnySpaceEnv(OBSERVATIONS["Box"], SPACES[kind]), policy=name)
        seen, plan, policy = observations(agent, 1, seed=3), agent.parts.plan, agent.policy
        assert isinstance(plan, PopulationPlan)
        assert isinstance(seen.features, torch.Tensor)
        size = len(parameters_to_vector(policy.parameters()))
        candidates = torch.randn(CANDIDATES, size, generator=torch.Generator().manual_seed(1))
        rows = seen.features.double().expand(CANDIDATES, -1).numpy()
        for candidate, played in zip(candidates, np.asarray(plan.make_act(candidates.numpy())(rows)), strict=True):
            vector_to_parameters(candidate, policy.parameters())
            answer = act_on(policy, seen, policy.initial_carry(1), seed=1, deterministic=True).action
            assert isinstance(answer, torch.Tensor)
            pairs = zip(parts_of(SPACES[kind], played), parts_of(SPACES[kind], answer[0].numpy()), strict=True)
            gap = max(abs(position_in(space, one) - position_in(space, other)) for (space, one), (_, other) in pairs)
            require(
                gap <= ROUNDING,
                f"{name}, {SPACES[kind]}: a candidate plays {played}, where the policy with its parameters answers {answer[0]}",
            )
