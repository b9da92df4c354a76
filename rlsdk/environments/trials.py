"""Whole episodes with given parameters, in numpy: the work of population methods, in this process or in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import EnvironmentFault
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, dtype_of, shape_of

Vector = NDArray[np.float64]
Act = Callable[[Vector], Any]
"""An encoded observation -> an action as the environment takes it."""


@attrs.frozen(eq=False)
class Moments:
    """Count, mean and summed squared deviations [F] of encoded observations."""

    count: int
    mean: Vector
    squares: Vector


@attrs.frozen(eq=False)
class Trial:
    """Parameters to play, the seed of each episode, and how observations are normalised (None: not at all)."""

    parameters: NDArray[np.float32]
    seeds: tuple[int, ...]
    mean: Vector | None = None
    factor: Vector | None = None
    clip: float = 10.0


@attrs.frozen(eq=False)
class Outcome:
    """What came of a trial: its episodes, and the moments of what was seen when observations are normalised."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...]
    moments: Moments | None


def encoded(space: Space, observation: Any) -> Vector:
    """An observation as one vector, float64 [F]: numbers as they are, discrete values one-hot, images divided by 255."""
    return encoder_of(space)(observation)


def encoder_of(space: Space) -> Callable[[Any], Vector]:
    """`encoded` for one space: what kind it is need not be asked at every step."""
    if isinstance(space, Dict):
        entries = [(key, encoder_of(child)) for key, child in space.spaces.items()]
        return lambda observation: np.concatenate([encode(observation[key]) for key, encode in entries])
    if isinstance(space, Tuple):
        parts = [encoder_of(child) for child in space.spaces]
        return lambda observation: np.concatenate([encode(own) for encode, own in zip(parts, observation, strict=True)])
    if isinstance(space, Discrete):
        return lambda observation: _one_hot(space.n, int(observation) - space.start)
    if isinstance(space, MultiDiscrete):
        start = np.asarray(space.start)

        def one_hot(observation: Any) -> Vector:
            columns = zip(space.nvec, np.asarray(observation) - start, strict=True)
            return np.concatenate([_one_hot(n, int(value)) for n, value in columns])

        return one_hot
    if isinstance(space, Box) and space.is_image:
        return lambda observation: np.asarray(observation, np.float64).reshape(-1) / 255.0
    return lambda observation: np.asarray(observation, np.float64).reshape(-1)


def _one_hot(count: int, which: int) -> Vector:
    row = np.zeros(count)
    row[which] = 1.0
    return row


def float_entries(space: Space) -> NDArray[np.bool_]:
    """bool [F]: which entries of `encoded` are floats, and may be normalised."""
    if isinstance(space, Dict | Tuple):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return np.concatenate([float_entries(child) for child in children])
    if isinstance(space, Discrete):
        return np.zeros(space.n, bool)
    if isinstance(space, MultiDiscrete):
        return np.zeros(sum(space.nvec), bool)
    return np.full(int(np.prod(shape_of(space))), dtype_of(space) == "float32")


def run_trial(make_act: Callable[[NDArray[np.float32]], Act], space: Space, environment: Any, trial: Trial) -> Outcome:
    """Play an episode for each seed of the trial.

    Args:
        make_act: parameters [D] -> what acts.
        space: of observations.
        environment: a gymnasium environment.
        trial: what to play.

    Raises:
        EnvironmentFault: an observation or reward is not finite.
    """
    act, step, encode, seen = make_act(trial.parameters), environment.step, encoder_of(space), list[Vector]()
    mean, factor, clip = trial.mean, trial.factor, trial.clip
    returns, lengths, successes = list[float](), list[int](), list[bool | None]()
    for seed in trial.seeds:
        observation, info = environment.reset(seed=seed)
        total, length, over = 0.0, 0, False
        while not over:
            vector = encode(observation)
            if mean is not None and factor is not None:
                seen.append(vector)
                vector = np.minimum(np.maximum((vector - mean) * factor, -clip), clip)
            observation, reward, terminated, truncated, info = step(act(vector))
            total, length, over = total + float(reward), length + 1, bool(terminated or truncated)
        if not np.isfinite(total):
            raise EnvironmentFault(f"environment {environment}: an episode has the return {total}; it must be finite")
        success = info.get("is_success") if isinstance(info, dict) else None
        returns.append(total)
        lengths.append(length)
        successes.append(None if success is None else bool(success))
    return Outcome(tuple(returns), tuple(lengths), tuple(successes), _moments(seen))


def _moments(seen: list[Vector]) -> Moments | None:
    if not seen:
        return None
    rows = np.stack(seen)
    mean = rows.mean(0)
    return Moments(len(rows), mean, np.square(rows - mean).sum(0))
