"""Whole episodes of candidates, played in numpy where the environments are: in this process or in others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

import attrs
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rlsdk.environments import EpisodeEnv
from rlsdk.errors import EnvironmentFault, shown
from rlsdk.networks import ObservationNormalizer, encoded_slices
from rlsdk.records import EnvStep, Episode, Features, Observation
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, dtype_of, shape_of

Vector = NDArray[np.float64]
Act = Callable[[Vector], Sequence[object] | NDArray[np.generic]]
"""A function: encoded observations [P, F] -> P actions in the form that the environment takes."""
MakeAct = Callable[[NDArray[np.float32]], Act]
"""A function: parameters [P, D] -> an `Act` that uses row p of the parameters for row p of the observations."""


@attrs.frozen(eq=False)
class Moments:
    """The count, mean and sum of squared deviations, [F], of encoded observations."""

    count: int
    mean: Vector
    squares: Vector


@attrs.frozen(eq=False)
class EpisodeRequest:
    """The parameters to play, the seed of each episode, and the normalization of observations.

    `mean`, `factor` and `clip` have one entry per number of an encoded observation, [F]; None: no normalization.
    """

    parameters: NDArray[np.float32]
    seeds: tuple[int, ...]
    mean: Vector | None = None
    factor: Vector | None = None
    clip: Vector | None = None
    steps: bool = False
    """Whether the result contains every step, for callbacks."""
    infos: bool = False
    """Whether these steps contain the infos."""


@attrs.frozen(eq=False)
class EpisodeStep:
    """One step of a request, as the environment returned it; `observation` is the one after the step."""

    action: object
    observation: object
    reward: SupportsFloat
    terminated: bool
    truncated: bool
    info: Mapping[str, object] | None
    """None unless the request has `infos`."""


@attrs.frozen(eq=False)
class EpisodeResult:
    """The result of a request: its episodes and, if observations are normalized, the moments of its observations."""

    episodes: tuple[Episode, ...]
    moments: Moments | None
    steps: tuple[EpisodeStep, ...] = ()
    """All steps in order, if the request has `steps`."""


def play_episodes(
    make_act: MakeAct, space: Space, environments: Sequence[Any], requests: Sequence[EpisodeRequest]
) -> list[EpisodeResult]:
    """Play one episode per seed of each request, with one request per environment at a time.

    A result depends on its own request only, bit by bit, and not on the requests that are played at the same time.

    Args:
        make_act: parameters [P, D] of the candidates that are playing -> the function that chooses their actions.
        space: the observation space.
        environments: gymnasium environments, all of the same kind.
        requests: the requests; all with the same normalization of observations.

    Raises:
        EnvironmentFault: a return or an observation is not finite, or an observation has another size than its space.
    """
    encode, size = encoder_of(space), max((part.stop for part in encoded_slices(space).values()), default=0)
    waiting, results = deque(enumerate(requests)), dict[int, EpisodeResult]()
    free, slots = list(map(EpisodeEnv, environments)), list[_EpisodeSlot]()
    while len(results) < len(requests):
        while free and waiting:
            # as soon as an environment is free: long episodes do not hold up the others
            slots.append(_EpisodeSlot(free.pop(), encode, size, *waiting.popleft()))
        _play(make_act(np.stack([slot.request.parameters for slot in slots])), slots)
        for slot in slots:
            if slot.finished:
                results[slot.number] = EpisodeResult(tuple(slot.episodes), _moments(slot.seen), tuple(slot.steps))
                free.append(slot.environment)
        slots = [slot for slot in slots if not slot.finished]
    return [results[number] for number in range(len(requests))]


class _EpisodeSlot:
    """An environment, the request that it plays, and the state of the current episode."""

    def __init__(
        self,
        environment: EpisodeEnv,
        encode: Callable[[object], Vector],
        size: int,
        number: int,
        request: EpisodeRequest,
    ) -> None:
        self.environment, self.encode, self.shape = environment, encode, (size,)
        self.number, self.request = number, request
        self.episodes, self.steps = list[Episode](), list[EpisodeStep]()
        self.step = self.noting if request.steps else environment.step
        self.seen: list[Vector] = []
        """Arrays [T, F] of consecutive observations; empty if observations are not normalized."""
        self.vector = self.begin()

    def begin(self) -> Vector:
        """Reset the environment and return the first observation of the next episode."""
        return self.read(self.environment.begin(self.request.seeds[len(self.episodes)]))

    def noting(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        """Step the environment and record the result. Arrays are copied, because environments may reuse them."""
        result = observation, reward, terminated, truncated, info = self.environment.step(action)
        infos = {name: copied(value) for name, value in info.items()} if self.request.infos else None
        self.steps.append(EpisodeStep(copied(action), copied(observation), reward, terminated, truncated, infos))
        return result

    def read(self, observation: object) -> Vector:
        """Encode an observation as a vector [F]."""
        vector = self.encode(observation)
        if vector.shape != self.shape:
            raise EnvironmentFault(
                f"environment {self.environment.name}: an observation has {vector.size} numbers, its space {self.shape[0]}"
            )
        return vector

    @property
    def finished(self) -> bool:
        """Whether every episode of the request has been played."""
        return len(self.episodes) == len(self.request.seeds)


def _play(act: Act, slots: Sequence[_EpisodeSlot]) -> None:
    """Step all slots together, with one call of `act` per step, until a request is finished."""
    mean, factor, clip = slots[0].request.mean, slots[0].request.factor, slots[0].request.clip
    vectors, frames = np.stack([slot.vector for slot in slots]), list[Vector]()
    steps, shape, as_it_is = [slot.step for slot in slots], slots[0].shape, slots[0].encode is flat_vector
    inputs = vectors if mean is None else np.empty_like(vectors)
    finished = False
    while not finished:
        if mean is not None and factor is not None and clip is not None:
            frames.append(vectors.copy())
            np.multiply(np.subtract(vectors, mean, out=inputs), factor, out=inputs)
            np.minimum(np.maximum(inputs, -clip, out=inputs), clip, out=inputs)
        _require_finite(vectors, slots)
        actions = act(inputs)
        for k, step in enumerate(steps):
            observation, _, terminated, truncated, info = step(actions[k])
            if not (terminated or truncated):
                # fast path with the same result as `read`, for observations that need no encoding
                if as_it_is and type(observation) is np.ndarray and observation.shape == shape:
                    vectors[k] = observation
                else:
                    vectors[k] = slots[k].read(observation)
                continue
            slots[k].episodes.append(slots[k].environment.episode(info))
            finished = finished or slots[k].finished
            if not slots[k].finished:
                vectors[k] = slots[k].begin()
    history = np.stack(frames) if frames else None
    for k, slot in enumerate(slots):
        slot.vector = vectors[k]
        if history is not None:
            slot.seen.append(history[:, k])


def _require_finite(vectors: Vector, slots: Sequence[_EpisodeSlot]) -> None:
    """Raises EnvironmentFault where an observation holds NaN or infinity."""
    if math.isfinite(np.vdot(vectors, vectors)):
        return  # a finite sum of squares proves that all are finite; one that is not may only have overflowed
    for k in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
        raise EnvironmentFault(
            f"environment {slots[k].environment.name}: an observation holds NaN or infinity: {shown(vectors[k])}"
        )


def copied(value: object) -> object:
    """Copy the arrays, dicts, lists and tuples of a nested value; return other values unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    if type(value) is list:
        return [copied(child) for child in value]
    return tuple(map(copied, value)) if type(value) is tuple else value


def steps_of(result: EpisodeResult, space: Space) -> Iterator[EnvStep]:
    """Yield one record [1] per environment step of a request, in the order of play.

    If a step ended an episode, its `observation` is the last one of that episode, not the first one of the next.
    """
    steps, finished = result.steps, iter(result.episodes)
    ends = [bool(step.terminated or step.truncated) for step in steps]
    # all steps together: calls of torch for each would take most of the time of a step
    features = _rows(space, [step.observation for step in steps])
    flags = ends, [bool(step.terminated) for step in steps], [bool(step.truncated) for step in steps]
    rows = (torch.tensor(column).unsqueeze(1).unbind() for column in (*flags, [float(step.reward) for step in steps]))
    valid, no = torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.bool)
    for step, ended, seen, is_first, terminated, truncated, reward in zip(steps, ends, features, *rows, strict=True):
        final, episodes = (Observation(seen, no), (next(finished),)) if ended else (None, ())
        infos = None if step.info is None else [step.info]
        yield EnvStep(
            Observation(seen, is_first), reward, terminated, truncated, valid, final, episodes, infos, _row(step.action)
        )


def _rows(space: Space, values: Sequence[Any]) -> Sequence[Features]:
    """Return T observations as tensors [1, ..] per leaf. Raises EnvironmentFault if one holds NaN or infinity."""
    if isinstance(space, Dict):
        columns = [_rows(child, [value[key] for value in values]) for key, child in space.spaces.items()]
        return [dict(zip(space.spaces, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(space, Tuple):
        places = enumerate(space.spaces)
        return list(zip(*(_rows(child, [value[i] for value in values]) for i, child in places), strict=True))
    found = np.asarray(values, dtype_of(space)).reshape(len(values), *shape_of(space))
    if not np.isfinite(found).all():
        raise EnvironmentFault("an observation that callbacks get holds NaN or infinity")
    return torch.from_numpy(found).unsqueeze(1).unbind()


def _row(action: object) -> object:
    """Return one action as a batch of size one."""
    if isinstance(action, dict):
        return {key: _row(value) for key, value in action.items()}
    return tuple(map(_row, action)) if isinstance(action, tuple) else torch.as_tensor(np.asarray(action)).unsqueeze(0)


# --- observations as vectors -------------------------------------------------------------------------------------------


def encoder_of(space: Space) -> Callable[[Any], Vector]:
    """Return the function that encodes an observation as one vector, float64 [F]: numbers unchanged, discrete values one-hot,
    images divided by 255. The kind of the space is examined once, not at every step."""
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

        def one_hot(observation: ArrayLike) -> Vector:
            columns = zip(space.nvec, np.asarray(observation) - start, strict=True)
            return np.concatenate([_one_hot(n, int(value)) for n, value in columns])

        return one_hot
    if isinstance(space, Box) and space.is_image:
        return lambda observation: np.asarray(observation, np.float64).reshape(-1) / 255.0
    return flat_vector


def flat_vector(observation: ArrayLike) -> Vector:
    """Return numbers unchanged as one vector, float64 [F]."""
    return np.asarray(observation, np.float64).reshape(-1)


def _one_hot(count: int, which: int) -> Vector:
    row = np.zeros(count)
    row[which] = 1.0
    return row


def flat_statistics(normalizer: ObservationNormalizer) -> tuple[Vector, Vector, Vector]:
    """Return (mean, factor, bound), float64 [F] each, for observations encoded as one vector.

    Entries that are not normalized have 0, 1 and infinity.
    """
    slices = encoded_slices(normalizer.space)
    size = max((part.stop for part in slices.values()), default=0)
    mean, factor, bound = np.zeros(size), np.ones(size), np.full(size, np.inf)
    for path, leaf in normalizer.moments.items():
        where = slices[path]
        # a factor, because numpy multiplies faster than it divides, at every step of every candidate
        mean[where], factor[where] = leaf.mean.ravel(), 1.0 / leaf.deviation.numpy().ravel()
        bound[where] = leaf.bound
    return mean, factor, bound


def _moments(seen: list[Vector]) -> Moments | None:
    if not seen:
        return None
    rows = np.concatenate(seen)
    # per request, so that a result does not depend on the others; merged later in the order of candidates
    mean = rows.mean(0)
    return Moments(len(rows), mean, np.square(rows - mean).sum(0))


def add_moments(normalizer: ObservationNormalizer, seen: Moments | None) -> None:
    """Add the moments [F] of encoded observations to the running statistics."""
    if seen is None or not normalizer.training:
        return
    slices = encoded_slices(normalizer.space)
    for path, leaf in normalizer.moments.items():
        shape = leaf.mean_variance[0].shape
        mean, squares = (values[slices[path]].reshape(shape) for values in (seen.mean, seen.squares))
        leaf.merge(seen.count, mean, squares / seen.count)
        leaf.refresh()
