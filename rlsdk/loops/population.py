"""The population loop: propose candidates, play them, learn from their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rlsdk.environments.trials import Outcome, Trial, run_trials
from rlsdk.interfaces import VectorEnv
from rlsdk.loops.cursor import Cursor
from rlsdk.parts import Parts, PopulationPlan
from rlsdk.records import Episode, Report, Scored
from rlsdk.seeding import Streams, derive


def population(
    env: VectorEnv, parts: Parts, cursor: Cursor, streams: Streams, *, start: int, end: int
) -> Iterator[tuple[Cursor, Report]]:
    """Train until `end` environment steps in total; `start` is where progress counts from (for schedules).

    A candidate's episodes depend on its parameters, the round and its number only, so the result is the same to the bit
    wherever it is played. Yields after every round; one that a callback cut short is counted and not learnt from.
    """
    collected = getattr(env, "rollout_ended", None)
    plan, algorithm = parts.plan, parts.algorithm
    assert isinstance(plan, PopulationPlan)
    player: Any = env
    proposer: Any = algorithm
    while cursor.env_steps < end:
        progress = min(1.0, (cursor.env_steps - start) / max(1, end - start))
        candidates: torch.Tensor = proposer.propose(progress=progress)
        outcomes = play(player, plan, candidates, streams.seed, cursor.updates)
        steps = sum(sum(outcome.lengths) for outcome in outcomes)
        if collected is not None:
            collected()
        if len(outcomes) < len(candidates):
            cursor = replace(cursor, env_steps=cursor.env_steps + steps)
            yield cursor, Report(cursor.env_steps, cursor.updates, _episodes(outcomes), None)
            continue
        score = scores(plan, outcomes)
        metrics = algorithm.update(Scored(candidates, score.to(candidates.device), steps), progress=progress)
        if plan.normalizer is not None:
            for outcome in outcomes:  # in the order of candidates, wherever they were played
                plan.normalizer.merge(outcome.moments)
        cursor = replace(cursor, env_steps=cursor.env_steps + steps, updates=cursor.updates + 1)
        yield cursor, Report(cursor.env_steps, cursor.updates, _episodes(outcomes), metrics)


def play(player: Any, plan: PopulationPlan, candidates: torch.Tensor, seed: int, iteration: int) -> list[Outcome]:
    """The episodes of candidates [P, D], whose seeds follow from `seed`, `iteration` and their number."""
    trials = [_trial(plan, row, seed, iteration, i) for i, row in enumerate(candidates.cpu().numpy())]
    outcomes: list[Outcome] = player.map(partial(run_trials, plan.make_act, player.observation_space), trials)
    return outcomes


def scores(plan: PopulationPlan, outcomes: Sequence[Outcome]) -> torch.Tensor:
    """float32 [P]: mean returns with `plan.alive_bonus_offset` added at every step."""
    return torch.tensor([_score(outcome, plan.alive_bonus_offset) for outcome in outcomes])


def _trial(plan: PopulationPlan, parameters: Any, seed: int, iteration: int, index: int) -> Trial:
    base = derive(seed, f"candidate {index}", iteration)
    seeds = tuple(derive(base, "episode", k) % 2**31 for k in range(plan.episodes))
    if plan.normalizer is None:
        return Trial(parameters, seeds)
    mean, factor, clip = plan.normalizer.flat()
    return Trial(parameters, seeds, mean, factor, clip)


def _score(outcome: Outcome, offset: float) -> float:
    """Mean over episodes of the return with `offset` added at every step."""
    totals = [total + offset * length for total, length in zip(outcome.returns, outcome.lengths, strict=True)]
    return sum(totals) / len(totals)


def _episodes(outcomes: Sequence[Outcome]) -> tuple[Episode, ...]:
    return tuple(
        Episode(0, *facts)
        for outcome in outcomes
        for facts in zip(outcome.returns, outcome.lengths, outcome.successes, strict=True)
    )
