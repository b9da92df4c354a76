"""Clauses about population methods: their candidates, episodes, scores and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk.records import Scored
from rlsdk.training import PopulationPlan
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_testing.batches import recording
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.noted_env import NotedEnv, NotedEpisode, steps_in
from rlsdk_testing.subject import ACTIONS, Subject, differing, equal_values, flat_state

EPISODES, ROUNDS = 3, 3
"""The episodes of each candidate, if the algorithm has a setting for that, and the rounds of a training."""
OFFSET = 0.5
"""The number added to every reward, if the algorithm has a setting for that."""
ROUNDING = 1e-4
"""The tolerance between float32 scores of the training and float64 scores of the kit."""


def _plan(agent: Agent) -> PopulationPlan:
    """Return the plan of the agent. Raises NotApplicable if the algorithm is not a population method."""
    if not isinstance(agent.parts.plan, PopulationPlan):
        raise NotApplicable("the algorithm is not a population method")
    return agent.parts.plan


@clause(
    "population.proposal",
    "propose() returns finite candidates [P, D]. They are the same for the same state of the agent's random streams.",
    "In `propose`, draw from a generator that belongs to the agent's state, and return one row of finite"
    " parameters per candidate.",
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
    "A candidate's actions depend only on its parameters and observation, bit for bit, not on other candidates.",
    "In the function that acts for candidates, use row i of the parameters for row i of the observations only."
    " Do not compute statistics over rows.",
)
def rows_independent(subject: Subject) -> None:
    _plan(subject.agent())
    for action in subject.manifest.actions:
        agent = subject.agent(AnySpaceEnv(subject.seen, ACTIONS[action]), zero_policy=False)
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
    "Training gives the same parameters, bit for bit, with one environment, with several, and in several processes.",
    "Derive the random numbers of an episode only from its round and its number, not from the process or"
    " environment that plays it.",
)
def same_everywhere(subject: Subject) -> None:
    _plan(subject.agent())

    def trained(count: int, kind: str) -> dict[str, torch.Tensor]:
        env = make_vec_env(
            lambda: AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind]), count, vectorization=kind, workers=2
        )
        try:
            return flat_state(subject.agent(env, zero_policy=False).learn(60))
        finally:
            env.close()

    alone = trained(1, "sync")
    for count, kind in ((3, "sync"), (2, "async")):
        wrong = differing(alone, trained(count, kind))
        require(not wrong, f"with {count} environments ({kind}) these differ from one alone: {wrong[:5]}")


@dataclass
class _Round:
    """The scores of the candidates of one round, and the episodes that they played."""

    scored: Scored
    episodes: list[NotedEpisode]

    def of_candidates(self) -> list[list[NotedEpisode]]:
        """Return the episodes of each candidate. The environment plays the candidates one after another."""
        count = len(self.scored.score)
        require(
            len(self.episodes) % count == 0,
            f"{count} candidates played {len(self.episodes)} episodes in a round, not equally many each",
        )
        each = len(self.episodes) // count
        return [self.episodes[i * each : (i + 1) * each] for i in range(count)]


def _rounds(subject: Subject, **changes: object) -> tuple[Agent, list[_Round]]:
    """Train an agent for `ROUNDS` rounds in one environment, and return the agent and a record of each round.

    Raises NotApplicable if the algorithm is not a population method.
    """
    episodes, found = list[NotedEpisode](), list[_Round]()
    chosen: dict[str, Any] = {"n_eval_episodes": EPISODES, "alive_bonus_offset": OFFSET, **changes}
    env = make_vec_env(lambda: subject.with_info(NotedEnv(subject, episodes)), 1)
    agent = subject.agent(env, zero_policy=False, **chosen)
    _plan(agent)
    episodes.clear()  # remove those that creating the agent has begun

    def note(scored: Scored) -> None:
        played = [episode for episode in episodes if episode.rewards]  # a training begins with a reset
        found.append(_Round(scored, played))
        episodes.clear()

    with recording(agent.parts.algorithm, note):
        while len(found) < ROUNDS:
            before = len(found)
            agent.learn(1, reset_num_timesteps=False)
            require(len(found) > before, "a training made no update")
    return agent, found


@clause(
    "population.episodes-differ",
    "The episodes of a candidate have different initial observations, and no round repeats the episodes of an"
    " earlier round.",
    "rounds(): derive the seed of an episode from the seed of the training, the round, the candidate and the number of the"
    " episode.",
)
def episodes_differ(subject: Subject) -> None:
    _, rounds = _rounds(subject)
    starts = [[[_start(episode) for episode in own] for own in each.of_candidates()] for each in rounds]
    for number, each in enumerate(starts):
        for i, own in enumerate(each):
            count = len(set(own))
            require(count == len(own), f"of {len(own)} episodes of a candidate {count} are different ones")
            earlier = {start for others in starts[:number] for start in others[i % len(others)]}
            require(not earlier & set(own), f"round {number + 1} begins as an earlier one, from the same observations")


def _start(episode: NotedEpisode) -> tuple[float, ...]:
    return tuple(episode.observations[0].tolist())


@clause(
    "population.scores-are-true",
    "A candidate's score is the mean return of its episodes, including the bonus that the plan adds to every"
    " reward. `Scored` counts the steps of all candidates.",
    "rounds(): reset the sum of rewards for every episode, and divide the sum of all returns by the number of"
    " episodes.",
)
def scores_are_true(subject: Subject) -> None:
    agent, rounds = _rounds(subject)
    bonus = _plan(agent).alive_bonus_offset
    for each in rounds:
        expected = [
            float(np.mean([sum(episode.rewards) + bonus * len(episode.rewards) for episode in own]))
            for own in each.of_candidates()
        ]
        found, steps = each.scored.score.tolist(), steps_in(each.episodes)
        close = np.allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)
        require(close, f"scores {found[:3]} of candidates whose episodes have the mean return {expected[:3]}")
        require(each.scored.env_steps == steps, f"{each.scored.env_steps} steps were counted of {steps}")


@clause(
    "population.statistics",
    "The normalisation statistics are those of the observations of all steps of all candidates.",
    "rounds(): merge the moments of every result into the plan's normalizer.",
)
def statistics(subject: Subject) -> None:
    subject.needs_vectors("vectors are normalised")
    agent, rounds = _rounds(subject, normalize=True)
    normalizer = _plan(agent).normalizer
    assert normalizer is not None
    acted = [episode.observations[:-1] for each in rounds for episode in each.episodes]
    rows = np.concatenate([np.stack(part) for part in acted])
    expected, found = rows.mean(0), normalizer.flat()[0]
    close = np.allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)
    require(close, f"the mean is {found.round(4)}, that of the observations of {len(rows)} steps {expected.round(4)}")
