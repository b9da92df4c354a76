"""The training loop of population methods: propose candidates, play episodes with them, learn from their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.errors import PluginError, UsageError
from rlsdk.interfaces import BuildContext, EpisodePlayer, Parts, Proposes, Training
from rlsdk.interfaces.abilities import ability
from rlsdk.networks.observation_normalizer import ObservationNormalizer
from rlsdk.records import Cursor, Episode, Report, Scored
from rlsdk.runtime.seeding import derive
from rlsdk.training.plan_errors import unlike_metrics
from rlsdk.training.population_episodes import EpisodeRequest, EpisodeResult, MakeAct, play_episodes


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
    normalizer: ObservationNormalizer | None = None
    """The running statistics of observations; None: observations are not normalised."""
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def with_settings(self, config: object, context: BuildContext) -> PopulationPlan:
        """See `rlsdk.interfaces.FollowsSettings`."""
        episodes = getattr(config, "n_eval_episodes", self.episodes)
        offset = getattr(config, "alive_bonus_offset", self.alive_bonus_offset)
        return replace(self, episodes=episodes, alive_bonus_offset=offset)

    def with_normalizer(self, normalizer: ObservationNormalizer | None) -> PopulationPlan:
        """See `rlsdk.interfaces.NormalizesEpisodes`."""
        return replace(self, normalizer=normalizer)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.ChecksParts`."""
        _proposer(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every round.

        The episodes of a candidate depend only on its parameters, the round and its number. The result is therefore the
        same, bit by bit, in every process. A round that a callback cut short is counted, but the algorithm does not
        learn from it.
        """
        algorithm, player = training.parts.algorithm, _episode_player(training.collector)
        proposer = _proposer(training.parts)
        while cursor.env_steps < training.end:
            progress = training.progress(cursor.env_steps)
            candidates = proposer.propose(progress=progress)
            results = play(player, self, candidates, training.streams.seed, cursor.updates)
            training.collector.end_round()
            steps = sum(sum(result.lengths) for result in results)
            metrics, updates = None, cursor.updates
            if len(results) == len(candidates):
                score = scores(self, results)
                metrics = algorithm.update(Scored(candidates, score.to(candidates.device), steps), progress=progress)
                if metrics is None:
                    raise unlike_metrics(metrics)
                updates += 1
                if self.normalizer is not None:
                    for result in results:  # in the order of candidates, wherever they were played
                        self.normalizer.merge(result.moments)
            cursor = Cursor(cursor.env_steps + steps, updates)
            yield cursor, Report(cursor.env_steps, cursor.updates, _episodes(results), metrics)


def _episode_player(collector: object) -> EpisodePlayer:
    """Return the collector as an `EpisodePlayer`.

    Raises:
        UsageError: the collector does not play whole episodes.
    """
    if not isinstance(collector, EpisodePlayer):
        raise UsageError(f"{type(collector).__name__} plays no whole episodes, which population methods need")
    return collector


def _proposer(parts: Parts) -> Proposes:
    """Return the algorithm as `Proposes`. Raises PluginError if it has no `propose`."""
    proposer = ability(parts.algorithm, Proposes)
    if proposer is None:
        kind = type(parts.algorithm).__name__
        raise PluginError(
            f"its plan plays candidates, and {kind} has no propose(progress=); see rlsdk.interfaces.Proposes"
        )
    return proposer


def play(
    player: EpisodePlayer, plan: PopulationPlan, candidates: torch.Tensor, seed: int, iteration: int
) -> list[EpisodeResult]:
    """Play the episodes of candidates [P, D]. Seeds depend on `seed`, `iteration` and the number of the candidate."""
    requests = [_request(plan, row, seed, iteration, i) for i, row in enumerate(candidates.cpu().numpy())]
    return player.play(partial(play_episodes, plan.make_act, player.observation_space), requests)


def scores(plan: PopulationPlan, results: Sequence[EpisodeResult]) -> torch.Tensor:
    """The score of each candidate, float32 [P]: its mean return with `plan.alive_bonus_offset` added at every step."""
    return torch.tensor([_score(result, plan.alive_bonus_offset) for result in results])


def _request(
    plan: PopulationPlan, parameters: NDArray[np.float32], seed: int, iteration: int, index: int
) -> EpisodeRequest:
    base = derive(seed, f"candidate {index}", iteration)
    seeds = tuple(derive(base, "episode", k) % 2**31 for k in range(plan.episodes))
    if plan.normalizer is None:
        return EpisodeRequest(parameters, seeds)
    mean, factor, clip = plan.normalizer.flat()
    return EpisodeRequest(parameters, seeds, mean, factor, clip)


def _score(result: EpisodeResult, offset: float) -> float:
    """The mean over episodes of the return with `offset` added at every step."""
    totals = [total + offset * length for total, length in zip(result.returns, result.lengths, strict=True)]
    return sum(totals) / len(totals)


def _episodes(results: Sequence[EpisodeResult]) -> tuple[Episode, ...]:
    return tuple(
        Episode(0, *context)
        for result in results
        for context in zip(result.returns, result.lengths, result.successes, strict=True)
    )
