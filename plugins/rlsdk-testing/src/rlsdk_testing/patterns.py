"""A toy task for any action space: each part of the action has its own best value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk_envs import action_at, position_in

GymSpace = gymnasium.Space[Any]
INSIDE = 0.15
"""The distance of the best value of a Box from one of its ends, as a share of the space. That end is close enough to score.
The middle and the other end are not; a policy that uses other units for actions would learn those."""
SPACES: dict[str, GymSpace] = {
    "Box": spaces.Box(np.array([[-0.2, -4.0]], np.float32), np.array([[4.0, 0.2]], np.float32)),
    "Discrete": spaces.Discrete(5, start=6),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3], start=[4, 5]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"b": spaces.Discrete(3, start=4), "a": spaces.Box(-0.2, 4.0, (1,), np.float32)}),
    "Tuple": spaces.Tuple([spaces.Box(-4.0, 0.2, (1,), np.float32), spaces.Discrete(3, start=4)]),
}
"""A space of each kind. Within a space, choices begin at different numbers other than 0; sizes and bounds differ from part to
part. In a Box, 0, where unsquashed policies begin, is near an end. Its best values lie beyond 1 or -1, or far from them."""
SLACK = 1e-5
"""How far an action may exceed its bounds, as a share of the distance between them, because of float32 rounding."""


def parts_of(space: GymSpace, action: Any) -> Iterator[tuple[GymSpace, object]]:
    """Yield (space of one number, number) for each part of an action."""
    if isinstance(space, spaces.Dict):
        for name, child in space.spaces.items():
            yield from parts_of(child, action[name])
    elif isinstance(space, spaces.Tuple):
        for child, part in zip(space.spaces, action, strict=True):
            yield from parts_of(child, part)
    else:
        yield from zip(_single(space), np.ravel(action), strict=True)


def _single(space: GymSpace) -> Iterator[GymSpace]:
    """Yield the spaces of the single numbers in a space without subspaces."""
    if isinstance(space, spaces.Box):
        for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True):
            yield spaces.Box(low, high, (), np.float32)
    elif isinstance(space, spaces.MultiDiscrete):
        for size, start in zip(space.nvec, space.start, strict=True):
            yield spaces.Discrete(int(size), start=int(start))
    elif isinstance(space, spaces.MultiBinary):
        yield from [spaces.Discrete(2)] * int(np.prod(space.shape))
    else:
        yield space


def pattern(space: GymSpace, first: bool) -> list[float]:
    """Return the best value of each part as a position from 0 to 1. Low and high alternate; with `first` low comes first."""
    found = []
    for i, (part, _) in enumerate(parts_of(space, action_at(space, 0.0))):
        high = float((i % 2 == 0) != first)
        found.append(abs(high - INSIDE) if isinstance(part, spaces.Box) else high)
    return found


def misses(space: GymSpace, places: Sequence[float], action: object) -> NDArray[np.float64]:
    """Return how far each part of the action is from its best value, float64 [parts], as a share of its space."""
    found = np.array([position_in(part, value) for part, value in parts_of(space, action)])
    distances: NDArray[np.float64] = np.abs(found - np.array(places))
    return distances


def action_with(space: GymSpace, places: Sequence[float]) -> object:
    """Return the action whose parts have the positions `places`, each from 0 to 1."""
    return _filled(space, iter(places))


def _filled(space: GymSpace, places: Iterator[float]) -> object:
    if isinstance(space, spaces.Dict):
        return {name: _filled(child, places) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_filled(child, places) for child in space.spaces)
    values = [action_at(part, next(places)) for part in _single(space)]
    return np.array(values, space.dtype).reshape(space.shape or ())


class PatternEnv(gymnasium.Env[object, object]):
    """An environment with episodes of one step. The reward is 1 minus the mean distance of the parts from their best values.

    An action outside the space raises ValueError.
    """

    def __init__(self, space: GymSpace, patterns: Sequence[Sequence[float]]) -> None:
        """`patterns`: for each state, the best value of each part, as a position from 0 to 1; observations are one-hot."""
        self.action_space, self.patterns, self.state = space, list(patterns), 0
        self.shown = np.eye(len(self.patterns), dtype=np.float32)
        """The observation of each state, float32 [states, states]."""
        self.observation_space: GymSpace = spaces.Box(-1.0, 1.0, (len(self.patterns),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(len(self.patterns)))
        return self.shown[self.state].copy(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        if not all(_inside(part, value) for part, value in parts_of(self.action_space, action)):
            raise ValueError(f"an environment was given the action {action!r}, which is outside {self.action_space}")
        reward = 1.0 - float(misses(self.action_space, self.patterns[self.state], action).mean())
        return self.shown[self.state].copy(), reward, True, False, {}


def _inside(space: GymSpace, value: Any) -> bool:
    if isinstance(space, spaces.Box):
        slack = SLACK * (space.high - space.low)
        return bool(space.low - slack <= value <= space.high + slack)
    assert isinstance(space, spaces.Discrete)
    return bool(value == int(value) and space.start <= value < space.start + space.n)
