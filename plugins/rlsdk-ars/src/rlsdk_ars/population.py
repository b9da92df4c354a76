"""The training loop of population methods: propose candidates, play episodes with them, learn from their scores.

Other algorithms of the kind can use it; the README of this package shows how.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, Protocol, cast

import attrs
import torch

from rlsdk.errors import PluginError, UsageError
from rlsdk.interfaces import BuildContext, Collector, Parts, Training
from rlsdk.records import Cursor, Episode, Metrics, Report
from rlsdk.runtime import derive
from rlsdk.training import LocalCollector
from rlsdk_ars.episodes import (
    EpisodeRequest,
    EpisodeResult,
    MakeAct,
    add_moments,
    flat_statistics,
    play_episodes,
    steps_of,
)


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """P candidate parameter vectors and their scores, for algorithms that search without gradients. `env_steps` counts the
    environment steps of scoring."""

    parameters: torch.Tensor  # [P, D]
    score: torch.Tensor  # [P]
    env_steps: int


class Proposer(Protocol):
    """What `PopulationPlan` calls of an algorithm; all else is as in `rlsdk.interfaces.Algorithm`."""

    def propose(self, *, progress: float) -> torch.Tensor:
        """Return the candidates, float32 [P, D], whose episodes are played next; `progress` as for `update`."""
        ...

    def update(self, batch: Scored, *, progress: float) -> Metrics:
        """Learn from the scores of the candidates; see `rlsdk.interfaces.Algorithm`."""
        ...


@dataclass(frozen=True, slots=True)
class PopulationPlan:
    """Plays `episodes` episodes with each candidate, several candidates at a time.

    `make_act(parameters [P, D])` returns a function that maps encoded observations [P, F] to P actions. Each action
    must depend on its own row only. `make_act` is pickled for other processes; it and the function it returns use
    numpy.
    """

    make_act: MakeAct
    episodes: int
    alive_bonus_offset: float = 0.0
    """A number that is added to the reward of every step when candidates are scored."""
    needs_environment: ClassVar[bool] = True
    plays_episodes: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def with_settings(self, config: object, context: BuildContext) -> PopulationPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        episodes = getattr(config, "n_eval_episodes", self.episodes)
        offset = getattr(config, "alive_bonus_offset", self.alive_bonus_offset)
        return replace(self, episodes=episodes, alive_bonus_offset=offset)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`."""
        kind, propose = type(parts.algorithm).__name__, getattr(parts.algorithm, "propose", None)
        if not callable(propose):
            raise PluginError(
                f"its training loop plays candidates, and {kind} has no propose(progress=); see rlsdk_ars.population.Proposer"
            )
        try:
            inspect.signature(propose).bind(progress=0.0)
        except TypeError as error:
            raise PluginError(f"{kind}.propose is called as propose(progress=) ({error})") from None

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every round.

        The episodes of a candidate depend only on its parameters, the round and its number. The result is therefore the
        same, bit by bit, in every process. A round that a callback cut short is counted, but the algorithm does not
        learn from it.
        """
        algorithm, collector = cast("Proposer", training.parts.algorithm), _player(training.collector)
        normalizer = collector.observation_normalizer
        while cursor.env_steps < training.end:
            progress = training.progress(cursor.env_steps)
            candidates = algorithm.propose(progress=progress)
            results = play(collector, self, candidates, training.streams.seed, cursor.updates)
            collector.end_round()
            episodes = tuple(episode for result in results for episode in result.episodes)
            steps, metrics, updates = sum(episode.length for episode in episodes), None, cursor.updates
            if len(results) == len(candidates):
                score = scores(self, results)
                metrics = algorithm.update(Scored(candidates, score.to(candidates.device), steps), progress=progress)
                if metrics is None:
                    raise PluginError(
                        "update() must return metrics: a mapping from names to 0-d tensors; it returned None"
                    )
                updates += 1
                if normalizer is not None:
                    for result in results:  # in the order of candidates, wherever they were played
                        add_moments(normalizer, result.moments)
            cursor = Cursor(cursor.env_steps + steps, updates)
            yield cursor, Report(cursor.env_steps, cursor.updates, episodes, metrics)


def _player(collector: Collector) -> LocalCollector:
    """Return the collector. Raises UsageError if it does not play whole episodes."""
    if not isinstance(collector, LocalCollector):
        raise UsageError(f"{type(collector).__name__} plays no whole episodes, which population methods need")
    return collector


def play(
    collector: LocalCollector, plan: PopulationPlan, candidates: torch.Tensor, seed: int, iteration: int
) -> list[EpisodeResult]:
    """Play the episodes of candidates [P, D]. Seeds depend on `seed`, `iteration` and the number of the candidate.

    If callbacks watch steps, they are called for them afterwards, in the order of the candidates, and there are fewer
    results if one of them stops the training.
    """
    normalizer = collector.observation_normalizer
    statistics = () if normalizer is None else flat_statistics(normalizer)
    # numpy, because requests go to other processes, which need no torch for them
    rows = enumerate(candidates.cpu().numpy())
    requests = [EpisodeRequest(row, _seeds(plan.episodes, seed, iteration, i), *statistics) for i, row in rows]
    work = partial(play_episodes, plan.make_act, collector.observation_space)
    if collector.report is None:
        return collector.play(work, requests)
    results, stopped, infos = list[EpisodeResult](), False, bool(getattr(collector.env, "keeps_infos", False))
    # in portions, so that a callback can stop the training between them
    for start in range(0, len(requests), collector.num_envs):
        portion = requests[start : start + collector.num_envs]
        noted = [attrs.evolve(each, steps=True, infos=infos) for each in portion]
        for result in collector.play(work, noted):
            for step in steps_of(result, collector.observation_space):
                if stopped:
                    break
                stopped = collector.report(step)
            # the steps of a round with many candidates would not fit into memory
            results.append(attrs.evolve(result, steps=()))
        if stopped:
            break
    return results


def scores(plan: PopulationPlan, results: Sequence[EpisodeResult]) -> torch.Tensor:
    """The score of each candidate, float32 [P]: its mean return with `plan.alive_bonus_offset` added at every step."""
    return torch.tensor([_score(result.episodes, plan.alive_bonus_offset) for result in results])


def _seeds(episodes: int, seed: int, iteration: int, index: int) -> tuple[int, ...]:
    """The seed of each episode of candidate number `index` in round number `iteration`."""
    # by number and iteration, so that a result does not depend on which process plays the candidate, or when
    base = derive(seed, f"candidate {index}", iteration)
    return tuple(derive(base, "episode", k) % 2**31 for k in range(episodes))


def _score(episodes: Sequence[Episode], offset: float) -> float:
    """The mean over episodes of the return with `offset` added at every step."""
    totals = [episode.episode_return + offset * episode.length for episode in episodes]
    return sum(totals) / len(totals)
