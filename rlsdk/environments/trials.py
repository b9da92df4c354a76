"""Whole episodes with given parameters, in numpy: the work of population methods, in this process or in others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.attributes import named
from rlsdk.environments.step_checks import FLAGS, NUMBERS, flag, number, require_info, success
from rlsdk.errors import EnvironmentFault
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, choices_of, leaf_spaces, shape_of

Vector = NDArray[np.float64]
Act = Callable[[Vector], Any]
"""Encoded observations [P, F] -> as many actions, as the environment takes them."""
MakeAct = Callable[[NDArray[np.float32]], Act]
"""Parameters [P, D] -> what acts with them, each row for the observation in the same row."""


@attrs.frozen(eq=False)
class Moments:
    """Count, mean and summed squared deviations [F] of encoded observations."""

    count: int
    mean: Vector
    squares: Vector


@attrs.frozen(eq=False)
class Trial:
    """Parameters to play, the seed of each episode, and how observations are normalised (None: not at all): mean, factor and
    bound of each entry [F]."""

    parameters: NDArray[np.float32]
    seeds: tuple[int, ...]
    mean: Vector | None = None
    factor: Vector | None = None
    clip: Vector | None = None
    steps: bool = False
    """Whether its outcome holds every step, for callbacks."""
    infos: bool = False
    """Whether those hold the infos too."""


@attrs.frozen(eq=False)
class TrialStep:
    """One step of a trial, as the environment gave it; `observation` is the one the step led to."""

    action: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any] | None
    """None unless asked for."""


@attrs.frozen(eq=False)
class Outcome:
    """What came of a trial: its episodes, and the moments of what was seen when observations are normalised."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...]
    moments: Moments | None
    steps: tuple[TrialStep, ...] = ()
    """In order, where the trial asks for them."""


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
    return _flat


def _flat(observation: Any) -> Vector:
    return np.asarray(observation, np.float64).reshape(-1)


def _one_hot(count: int, which: int) -> Vector:
    row = np.zeros(count)
    row[which] = 1.0
    return row


def encoded_parts(space: Space) -> dict[str, slice]:
    """Where each leaf of a space, by its path, lies in `encoded`."""
    parts, start = dict[str, slice](), 0
    for path, leaf in leaf_spaces(space):
        size = sum(choices_of(leaf)) if isinstance(leaf, Discrete | MultiDiscrete) else math.prod(shape_of(leaf))
        parts[path] = slice(start, start + size)
        start += size
    return parts


def run_trials(make_act: MakeAct, space: Space, environments: Sequence[Any], trials: Sequence[Trial]) -> list[Outcome]:
    """Play an episode for each seed of each trial; as many trials side by side as there are environments.

    An outcome depends on its trial alone, to the bit, however many are played beside it.

    Args:
        make_act: parameters [P, D] of the candidates being played -> what acts for them.
        space: of observations.
        environments: gymnasium environments, all alike.
        trials: what to play; their observations are normalised alike.

    Raises:
        EnvironmentFault: a return is not finite, or an observation has another size than its space.
    """
    encode, size = encoder_of(space), max((part.stop for part in encoded_parts(space).values()), default=0)
    waiting, outcomes = deque(enumerate(trials)), dict[int, Outcome]()
    free, seats = list(environments), list[_Seat]()
    while len(outcomes) < len(trials):
        while free and waiting:
            seats.append(_Seat(free.pop(), encode, size, *waiting.popleft()))
        _play(make_act(np.stack([seat.trial.parameters for seat in seats])), seats)
        for seat in seats:
            if seat.finished:
                outcomes[seat.number] = seat.outcome()
                free.append(seat.environment)
        seats = [seat for seat in seats if not seat.finished]
    return [outcomes[number] for number in range(len(trials))]


class _Seat:
    """An environment, the trial it plays, and how far it is."""

    def __init__(self, environment: Any, encode: Callable[[Any], Vector], size: int, number: int, trial: Trial) -> None:
        self.environment, self.encode, self.shape = environment, encode, (size,)
        self.number, self.trial = number, trial
        self.returns, self.lengths, self.successes = list[float](), list[int](), list[bool | None]()
        self.total, self.length = 0.0, 0
        self.steps: list[TrialStep] = []
        self.step = self.noting if trial.steps else environment.step
        self.seen: list[Vector] = []
        """Observations [T, F], stretch by stretch, where they are normalised."""
        self.vector = self.begin()

    def begin(self) -> Vector:
        """The first observation of the next episode."""
        observation, _ = self.environment.reset(seed=self.trial.seeds[len(self.returns)])
        return self.read(observation)

    def noting(self, action: Any) -> Any:
        """Step the environment and note what it gave; copied, as environments may use their arrays again."""
        result = observation, reward, terminated, truncated, info = self.environment.step(action)
        said = copied(info) if self.trial.infos and isinstance(info, dict) else None
        self.steps.append(TrialStep(copied(action), copied(observation), reward, terminated, truncated, said))
        return result

    def read(self, observation: Any) -> Vector:
        """An observation as numbers."""
        vector = self.encode(observation)
        if vector.shape != self.shape:
            raise EnvironmentFault(
                f"environment {named(self.environment)}: an observation has {vector.size} numbers, its space {self.shape[0]}"
            )
        return vector

    def checked(self, result: Any, step: int) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated) of a step that gave unusual types.

        Raises:
            EnvironmentFault: names the environment, the step and the field.
        """
        _, reward, terminated, truncated, info = result
        try:
            require_info(info)
            return number(reward), flag(terminated, "terminated"), flag(truncated, "truncated")
        except EnvironmentFault as error:
            raise EnvironmentFault(
                f"environment {named(self.environment)} {error} (step {step} of its episode)"
            ) from None

    def end(self, total: float, length: int, info: Any) -> None:
        """An episode is over."""
        if not math.isfinite(total):
            raise EnvironmentFault(
                f"environment {named(self.environment)}: an episode has the return {total}; it must be finite"
            )
        try:
            self.successes.append(success(info))
        except EnvironmentFault as error:
            raise EnvironmentFault(
                f"environment {named(self.environment)} {error} (step {length} of its episode)"
            ) from None
        self.returns.append(total)
        self.lengths.append(length)

    @property
    def finished(self) -> bool:
        """Whether every episode of the trial was played."""
        return len(self.returns) == len(self.trial.seeds)

    def outcome(self) -> Outcome:
        """What came of the trial."""
        facts = tuple(self.returns), tuple(self.lengths), tuple(self.successes)
        return Outcome(*facts, _moments(self.seen), tuple(self.steps))


def _play(act: Act, seats: Sequence[_Seat]) -> None:
    """Step seats together, with one action for all of them, until a trial is finished."""
    mean, factor, clip = seats[0].trial.mean, seats[0].trial.factor, seats[0].trial.clip
    vectors, frames = np.stack([seat.vector for seat in seats]), list[Vector]()
    totals, began = [seat.total for seat in seats], [-seat.length for seat in seats]
    steps, shape, as_it_is = [seat.step for seat in seats], seats[0].shape, seats[0].encode is _flat
    inputs = vectors if mean is None else np.empty_like(vectors)
    clock, finished = 0, False
    while not finished:
        if mean is not None and factor is not None and clip is not None:
            frames.append(vectors.copy())
            np.multiply(np.subtract(vectors, mean, out=inputs), factor, out=inputs)
            np.minimum(np.maximum(inputs, -clip, out=inputs), clip, out=inputs)
        actions = act(inputs)
        clock += 1
        for k, step in enumerate(steps):
            observation, reward, terminated, truncated, info = result = step(actions[k])
            if (
                type(terminated) not in FLAGS
                or type(truncated) not in FLAGS
                or type(reward) not in NUMBERS
                or type(info) is not dict
            ):
                reward, terminated, truncated = seats[k].checked(result, clock - began[k])
            totals[k] += float(reward)
            if not (terminated or truncated):
                # where an observation is its own encoding `read` would give the same, for the price of four calls
                own = as_it_is and type(observation) is np.ndarray and observation.shape == shape
                vectors[k] = observation if own else seats[k].read(observation)
                continue
            seats[k].end(totals[k], clock - began[k], info)
            if seats[k].finished:
                finished = True
            else:
                vectors[k], totals[k], began[k] = seats[k].begin(), 0.0, clock
    history = np.stack(frames) if frames else None
    for k, seat in enumerate(seats):
        seat.vector, seat.total, seat.length = vectors[k], totals[k], clock - began[k]
        if history is not None:
            seat.seen.append(history[:, k])


def copied(value: Any) -> Any:
    """Arrays, mappings, lists and tuples of a value copied; anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def _moments(seen: list[Vector]) -> Moments | None:
    if not seen:
        return None
    rows = np.concatenate(seen)
    mean = rows.mean(0)
    return Moments(len(rows), mean, np.square(rows - mean).sum(0))
