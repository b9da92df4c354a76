"""Clauses about every kind of action that the manifest lists: learning the best action, and acting for candidates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlsdk.agent import Agent
from rlsdk.records import Observation
from rlsdk_envs import AnySpaceEnv, position_in
from rlsdk_testing.acting import act_on, observations
from rlsdk_testing.batches import is_population
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.patterns import SPACES, GymSpace, PatternEnv, action_with, misses, parts_of, pattern
from rlsdk_testing.subject import Subject
from rlsdk_testing.toys import Toy, greedy_actions, require_learned

BOUND = 0.8
"""The score to reach: 1 minus the distance of the worst part of the action from the best value of that part. The best action
for one of the two patterns scores at most 0.5 for the other. The middle of a Box scores 0.75. The algorithms of this project
score 0.9 to 1."""
UPDATES = 500
"""The largest number of updates; the algorithms of this project need at most 300. A larger number would waste time on
algorithms that cannot learn a kind of action."""
BOTH, LOW, HIGH = ((True, False),), ((True,),), ((False,),)
"""Tasks, each with one entry for each of its states: whether the best value of the first part is low."""
ORDERS = {"Dict": LOW, "Tuple": HIGH, "MultiDiscrete": BOTH, "MultiBinary": BOTH}
"""Kind of action -> the tasks for it; all other kinds get two tasks, LOW and HIGH. Dict and Tuple get one task, because their
parts are of kinds that have tasks themselves. Kinds with several choices get one task with two states: a policy that mixes up
the values of two choices cannot solve it by chance."""


@clause(
    "learns.bandit",
    "In tasks of one step, training learns the action with the highest reward, for each kind of action space"
    " and each position of that action. All actions played are in the space.",
    "update(): check the sign of the policy's loss, which reward belongs to an action, and the units of"
    " actions. Discrete actions count from `start`, Box actions range from `low` to `high`, and each choice"
    " has separate columns.",
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
            require_learned(subject, Toy("bandit", env, score, BOUND, expected, right=right, updates=UPDATES))


def _right(wanted: Sequence[object], observation: Observation) -> object:
    assert isinstance(observation.features, torch.Tensor)
    return wanted[int(observation.features[0].argmax())]


def _score(space: GymSpace, patterns: Sequence[Sequence[float]], agent: Agent) -> float:
    """Return 1 minus the distance of the worst part of the action from its best value, in the worst state."""
    actions = greedy_actions(agent, np.eye(len(patterns), dtype=np.float32))
    return min(1.0 - float(misses(space, *each).max()) for each in zip(patterns, actions, strict=True))


CANDIDATES, ROUNDING = 32, 1e-5
"""The number of random candidates, and how far their actions may be from the policy's, as a share of the space."""


@clause(
    "population.plays-the-policy",
    "A candidate plays the actions of the policy with the candidate's parameters, for every kind of action and"
    " every policy.",
    "In the function that acts for candidates, decode outputs as the policy's act() does. Use the same order"
    " of parameters (that of torch.nn.utils.parameters_to_vector), the same activations, and actions in the"
    " units of the space.",
)
def plays_the_policy(subject: Subject) -> None:
    if not is_population(subject.agent().parts.plan):
        raise NotApplicable("the algorithm is not a population method")
    for name, kind in product(subject.spec.policies, subject.manifest.actions):
        agent = subject.agent(AnySpaceEnv(subject.seen, SPACES[kind]), policy=name)
        seen, policy, plan = observations(agent, 1, seed=3), agent.policy, agent.parts.plan
        assert is_population(plan)
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
