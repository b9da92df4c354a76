"""What a population method promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk.environments.toy import AnySpaceEnv
from rlsdk.testing.kit import clause, require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.subject import ACTIONS, OBSERVATIONS, Subject, differing, equal_values, flat_state
from rlsdk.training import PopulationPlan


def _plan(agent: Agent) -> PopulationPlan:
    """Raises NotApplicable where the algorithm plays no candidates."""
    if not isinstance(agent.parts.plan, PopulationPlan):
        raise NotApplicable("the algorithm is not a population method")
    return agent.parts.plan


@clause(
    "population.proposal",
    "propose() gives finite candidates [P, D], the same for the same state of the agent's streams.",
    "In `propose` draw from a generator that belongs to the agent's state, and return one row of finite parameters "
    "per candidate.",
)
def proposal(subject: Subject) -> None:
    agents = [subject.agent(), subject.agent()]
    _plan(agents[0])
    with torch.random.fork_rng(devices=[]):
        proposals = []
        for i, agent in enumerate(agents):
            torch.manual_seed(i)
            proposer: Any = agent.parts.algorithm
            proposals.append(proposer.propose(progress=0.0))
    one, two = proposals
    require(one.dim() == 2 and len(one) > 0, f"candidates have shape {tuple(one.shape)}")
    require(bool(one.isfinite().all()), "a candidate has parameters that are not finite")
    require(torch.equal(one, two), "two agents with the same seed proposed different candidates")


@clause(
    "population.rows-independent",
    "A candidate's actions depend on its own parameters and observation only, to the bit, not on the other candidates.",
    "In the function that acts for candidates use row i of the parameters for row i of the observations only; do not "
    "share statistics over rows.",
)
def rows_independent(subject: Subject) -> None:
    _plan(subject.agent())
    for action in subject.manifest.actions:
        agent = subject.agent(AnySpaceEnv(OBSERVATIONS["Box"], ACTIONS[action]), zero_policy=False)
        plan, proposer = _plan(agent), agent.parts.algorithm
        candidates = proposer.propose(progress=0.0).cpu().numpy()[:5]  # type: ignore[attr-defined]
        values = agent.observation_space
        values.seed(3)
        seen = np.stack([np.asarray(values.sample(), np.float64) for _ in candidates])
        together = plan.make_act(candidates)(seen)
        for i in range(len(candidates)):
            alone = plan.make_act(candidates[i : i + 1])(seen[i : i + 1])[0]
            require(
                equal_values(np.asarray(alone), np.asarray(together[i])),
                f"{action}: candidate {i} alone does {alone}, beside others {together[i]}",
            )
            require(bool(values is not None and agent.action_space.contains(alone)), f"{alone} is outside {action}")


@clause(
    "population.same-everywhere",
    "Training gives the same parameters, to the bit, in one environment, in several, and in processes.",
    "Derive the randomness of an episode from its round and number only, not from the process or environment that "
    "plays it.",
)
def same_everywhere(subject: Subject) -> None:
    _plan(subject.agent())

    def trained(count: int, kind: str) -> dict[str, torch.Tensor]:
        env = make_vec_env(
            lambda: AnySpaceEnv(OBSERVATIONS["Box"], ACTIONS[subject.action_kind]), count, vectorization=kind, workers=2
        )
        try:
            return flat_state(subject.agent(env, zero_policy=False).learn(60))
        finally:
            env.close()

    alone = trained(1, "sync")
    for count, kind in ((3, "sync"), (2, "async")):
        wrong = differing(alone, trained(count, kind))
        require(not wrong, f"with {count} environments ({kind}) these differ from one alone: {wrong[:5]}")
