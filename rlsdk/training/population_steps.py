"""Converts the steps of an `EpisodeRequest` to records, for callbacks that watch a population method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space
from rlsdk.training.population_episodes import EpisodeResult


def steps_of(result: EpisodeResult, space: Space) -> Iterator[EnvStep]:
    """Yield one record [1] per environment step of a request, in the order of play.

    If a step ended an episode, its `observation` is the last one of that episode, not the first one of the next.
    """
    stack, number = ObservationBatcher(space), 0
    for step in result.steps:
        ended = bool(step.terminated or step.truncated)
        observation = Observation(stack([step.observation]), torch.tensor([ended]))
        episodes: tuple[Episode, ...] = ()
        if ended:
            context = result.returns[number], result.lengths[number], result.successes[number]
            episodes, number = (Episode(0, *context),), number + 1
        yield EnvStep(
            observation,
            torch.tensor([float(step.reward)]),
            torch.tensor([bool(step.terminated)]),
            torch.tensor([bool(step.truncated)]),
            torch.ones(1, dtype=torch.bool),
            Observation(observation.features, torch.tensor([False])) if ended else None,
            episodes,
            None if step.info is None else [step.info],
            _row(step.action),
        )


def _row(action: object) -> object:
    """Return one action as a batch of size one."""
    if isinstance(action, dict):
        return {key: _row(value) for key, value in action.items()}
    return tuple(map(_row, action)) if isinstance(action, tuple) else torch.as_tensor(np.asarray(action)).unsqueeze(0)
