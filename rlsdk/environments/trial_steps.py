"""The steps of trials as records, for callbacks that watch a population method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rlsdk.environments.observations import Stacker
from rlsdk.environments.trials import Outcome
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space


def steps_of(outcome: Outcome, space: Space) -> Iterator[EnvStep]:
    """One record [1] per environment step of a trial, in the order they were played.

    Where an episode ended, `observation` is its last one: the next episode, if any, begins in another record.
    """
    stack, number = Stacker(space), 0
    for step in outcome.steps:
        ended = bool(step.terminated or step.truncated)
        observation = Observation(stack([step.observation]), torch.tensor([ended]))
        episodes: tuple[Episode, ...] = ()
        if ended:
            facts = outcome.returns[number], outcome.lengths[number], outcome.successes[number]
            episodes, number = (Episode(0, *facts),), number + 1
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


def _row(action: Any) -> Any:
    """One action as a batch of one."""
    if isinstance(action, dict):
        return {key: _row(value) for key, value in action.items()}
    return tuple(map(_row, action)) if isinstance(action, tuple) else torch.as_tensor(np.asarray(action)).unsqueeze(0)
