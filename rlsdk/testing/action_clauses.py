"""Clauses of actions of every kind that the manifest lists: learning them, and playing those of candidates."""

from __future__ import annotations

from collections.abc import Sequence
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
from rlsdk.testing.subject import Subject
from rlsdk.testing.toys import Toy, greedy_actions, require_learnt
from rlsdk.training import PopulationPlan

BOUND = 0.8
"""Of 1 minus the distance of the worst part of the action from its place. What is right for one of the two patterns has at most
0.5 for the other; the middle of a Box has 0.75; correct algorithms of ours reach 0.9 to 1."""
UPDATES = 500
"""Ours need 300 at most. Algorithms that learn some kinds of action only are tried for long with the others."""
BOTH, LOW, HIGH = ((True, False),), ((True,),), ((False,),)
"""Whether the first part's place is low, in each state of each task."""
ORDERS = {"Dict": LOW, "Tuple": HIGH, "MultiDiscrete": BOTH, "MultiBinary": BOTH}
"""Once where the parts are of kinds that are learnt alone, both ways elsewhere: of several choices in two states of one task,
which is learnt by no luck where one choice's values are taken for another's."""


@clause(
    "learns.bandit",
    "training learns the action with the highest reward in a task of one step, for each kind of action space and for each"
    " position of that action; every action played lies in the space",
    "update(): look at the sign of the policy's loss, at the reward that an action gets, and at the units of actions: choices"
    " count from `start`, Box actions from `low` to `high`, and each choice has its own columns",
)
def bandit(subject: Subject) -> None:
    if "Box" not in subject.manifest.observations:
        raise NotApplicable("the task has vectors as observations, which the plugin does not support")
    for kind in subject.manifest.actions:
        for order in ORDERS.get(kind, LOW + HIGH):
            space = SPACES[kind]
            patterns = [pattern(space, first) for first in order]
            wanted = [action_with(space, places) for places in patterns]
            env, score = partial(PatternEnv, space, patterns), partial(_score, space, patterns)
            which = " or, in the other state, ".join(map(repr, wanted))
            expected = f"of {kind} actions {which} pays 1, others the less the farther they are from it, in {space}"
            right = partial(_right, wanted)
            require_learnt(subject, Toy("bandit", env, score, BOUND, expected, right=right, updates=UPDATES))


def _right(wanted: Sequence[object], observation: Observation) -> object:
    assert isinstance(observation.features, torch.Tensor)
    return wanted[int(observation.features[0].argmax())]


def _score(space: GymSpace, patterns: Sequence[Sequence[float]], agent: Agent) -> float:
    """1 minus the distance of the worst part of the action from its place, in the worst state."""
    actions = greedy_actions(agent, np.eye(len(patterns), dtype=np.float32))
    return min(1.0 - float(misses(space, *each).max()) for each in zip(patterns, actions, strict=True))


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
        agent = subject.agent(AnySpaceEnv(subject.seen, SPACES[kind]), policy=name)
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
