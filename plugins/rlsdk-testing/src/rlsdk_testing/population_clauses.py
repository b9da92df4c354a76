"""Clauses about population methods: their candidates, episodes, scores and statistics."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.alternatives import settings_of
from rlsdk_testing.batches import is_population, recording
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.noted_env import NotedEnv, NotedEpisode, steps_in
from rlsdk_testing.rollouts import scored as scored_of
from rlsdk_testing.subject import ACTIONS, Subject, differing, equal_values, flat_state

if TYPE_CHECKING:
    from rlsdk_ars import PopulationPlan, Scored

EPISODES, ROUNDS = 3, 3
"""The episodes of each candidate, if the algorithm has a setting for that, and the rounds of a training."""
OFFSET = 0.5
"""The number added to every reward, if the algorithm has a setting for that."""
PROPOSALS = 30
"""The number of proposals whose mean is compared with the policy."""
ROUNDING = 1e-4
"""The tolerance between float32 scores of the training and float64 scores of the kit."""


def _plan(agent: Agent) -> PopulationPlan:
    """Return the plan of the agent. Raises NotApplicable if the algorithm is not a population method."""
    plan: object = agent.parts.plan
    if not is_population(plan):
        raise NotApplicable("the algorithm is not a population method")
    return plan


@clause(
    "population.proposal",
    "propose() returns finite candidates [P, D] around the policy's parameters. They are the same for the same state of the"
    " agent's random streams.",
    "In `propose`, draw from a generator that belongs to the agent's state, and return one row of finite"
    " parameters per candidate. The mean of the noise is 0.",
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
    proposer = agents[0].parts.algorithm
    drawn = torch.cat([proposer.propose(progress=0.5) for _ in range(PROPOSALS)]).double()
    policy: Any = agents[0].parts.policy
    center = torch.cat([parameter.detach().double().flatten() for parameter in policy.parameters()])
    error = float((drawn - center).mean(1).mean())
    bound = 5.0 * float((drawn - center).mean(1).std()) / len(drawn) ** 0.5
    require(abs(error) <= bound + ROUNDING, f"{len(drawn)} candidates differ by {error:.3g} on average from the policy")


@clause(
    "population.rows-independent",
    "A candidate's actions depend only on its parameters and observation, bit for bit, not on other candidates.",
    "In the function that acts for candidates, which build() or the policy gives, use row i of the parameters for row i of"
    " the observations only. Do not compute statistics over rows.",
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
    "rounds(): derive the random numbers of an episode only from its round and its number, not from the process or"
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
    "A candidate's score is the mean return of its episodes, including the bonus that the training loop adds to every"
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
    "The normalization statistics are those of the observations of all steps of all candidates.",
    "rounds(): add the moments of every result to the collector's observation_normalizer.",
)
def statistics(subject: Subject) -> None:
    subject.needs_vectors("vectors are normalized")
    agent, rounds = _rounds(subject, normalize=True)
    assert agent.normalizer is not None
    leaf = agent.normalizer.observations.moments["observation"]
    acted = [episode.observations[:-1] for each in rounds for episode in each.episodes]
    rows = np.concatenate([np.stack(part) for part in acted])
    expected, found = rows.mean(0), leaf.mean
    close = np.allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)
    require(close, f"the mean is {found.round(4)}, that of the observations of {len(rows)} steps {expected.round(4)}")


SHIFT = 5.0
"""How far all candidates are moved, and the policy with them."""
DECAY = 0.1
"""The largest share of the parameters that an update may take away, as weight decay does."""


@clause(
    "population.candidates-moved",
    "If the candidates and the policy are moved by one vector, an update sets parameters that are moved by it too.",
    "update(): weights of candidates in a mean have the sum 1; look for a factor on the mean, and for a sum in its place."
    " A step from the present parameters is added to them.",
)
def candidates_moved(subject: Subject) -> None:
    agent = subject.agent(zero_policy=False)
    _plan(agent)
    batch = _distinct(agent)
    plain, moved = _after(agent, batch, 0.0), _after(agent, batch, SHIFT)
    share = float((moved - plain).mean()) / SHIFT
    require(
        1.0 - DECAY <= share <= 1.0 + ROUNDING and float((moved - plain - share * SHIFT).abs().max()) < DECAY * SHIFT,
        f"candidates and policy that are moved by {SHIFT:g} give parameters that are moved by {share * SHIFT:.3g}",
    )


@clause(
    "population.elites",
    "A setting that is described as the number of best candidates counts them: with 1, 2 and 3 the next parameters lie between"
    " that many candidates, of the highest scores. They are the mean of these if the description names it.",
    "update(): take score.topk(number).indices and the mean of the parameters of these candidates, dim 0.",
)
def elites(subject: Subject) -> None:
    agent = subject.agent(zero_policy=False)
    _plan(agent)
    described = [
        (each.name, each.doc.help)
        for each in settings_of(agent.config)
        if isinstance(each.value, int) and "best candidates" in each.doc.help
    ]
    if not described:
        raise NotApplicable("no setting is described as a number of best candidates")
    for name, text in described:
        for count in (1, 2, 3):
            given: dict[str, Any] = {name: count}
            chosen = subject.agent(zero_policy=False, **given)
            is_mean = any(word in text for word in MEANS) and "weight" not in text
            _require_of_best(chosen, count, f"{name} = {count}", is_mean)


MEANS = ("mean", "fitted")
"""Words with which a description promises the plain mean of the best candidates."""


def _require_of_best(agent: Agent, count: int, what: str, is_mean: bool) -> None:
    """Check that the parameters after an update are an average of those of the `count` best candidates."""
    batch = _distinct(agent)
    best = batch.parameters[batch.score.argsort(descending=True)[:count]].double()
    found = _after(agent, batch, 0.0)
    equal = torch.full((count,), 1.0 / count, dtype=torch.float64)
    weights = equal if is_mean else torch.linalg.lstsq(best.T, found).solution
    error = float((weights @ best - found).norm() / best.norm())
    wanted = "their mean" if is_mean else f"an average of them, but with the weights {weights.numpy().round(3)}"
    averages = bool((weights > 0.0).all()) and abs(float(weights.sum()) - 1.0) < ROUNDING
    require(
        error < ROUNDING and averages,
        f"{what}: the parameters after an update differ by {error:.1%} from those of the {count} best candidates; they should"
        f" be {wanted}",
    )


def _distinct(agent: Agent) -> Scored:
    """Return the candidates that an agent proposes, with scores that all differ, in no order."""
    batch, generator = scored_of(agent), torch.Generator().manual_seed(4)
    return replace(batch, score=torch.randperm(len(batch.score), generator=generator).to(batch.parameters))


def _after(agent: Agent, batch: Scored, shift: float) -> torch.Tensor:
    """Return the parameters of the policy, float64 [D], after an update with candidates and policy moved by `shift`.

    The agent is as before afterwards.
    """
    before, streams = deepcopy(agent.get_parameters()), agent.streams.state_dict()
    policy: Any = agent.parts.policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(shift)
    agent.parts.algorithm.update(replace(batch, parameters=batch.parameters + shift), progress=0.5)
    found = torch.cat([parameter.detach().double().flatten() for parameter in policy.parameters()])
    agent.set_parameters(before)
    agent.streams.load_state_dict(streams)
    return found
