"""What the keys and the gamepad of a player mean: the key map of `record-episodes --human`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError, shown
from rlsdk.spaces import Box, Discrete, Space, dtype_of

KEYS = ("left", "right", "up", "down", "space", "return", *"abcdefghijklmnopqrstuvwxyz0123456789")
GAMEPAD = re.compile(r"axis\d+[+-]?|trigger\d+|button\d+|hat-(left|right|up|down)")
ACCEPTED = f"{', '.join(KEYS[:6])}, a to z, 0 to 9, axis0, axis0+, axis0-, trigger4, button0, hat-left, and none"
PAIRS = (("left", "right"), ("down", "up"), ("a", "d"), ("s", "w"), ("q", "e"), ("f", "r"), ("1", "2"), ("3", "4"))
"""The keys that move dimension 0, 1, ... of a Box space down and up, if no others are given."""
STICKS = (1, -1, 1, -1)
"""The direction of the first four axes of a gamepad: the two vertical ones are negative when a stick is pushed up."""
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
MOVE = re.compile(rf"(\d{{1,9}})(?::([+-]?{NUMBER})|([+-]{NUMBER}))?")
PRESSED = 0.5
"""How far an axis moves before it counts as a pressed key of a Discrete space."""

Held = Mapping[str, float]
"""Control -> how far it is moved: 1 for pressed keys and buttons, -1 to 1 for axes. Others are absent."""
Player = Callable[[Held, bool], NDArray[np.generic]]
"""Function from the held controls, and whether an episode begins, to the actions [1, ..] of one environment."""


@dataclass(frozen=True)
class Move:
    """What one control does to one dimension of an action."""

    dimension: int
    value: float
    """The dimension while the control is fully moved; if `stays`, what it adds at each picture."""
    stays: bool = False


def player_of(space: Space, given: Mapping[str, int | str], declared: Mapping[str, int]) -> tuple[Player, str]:
    """Return the function that turns held controls into actions, and a line that describes its key map.

    Args:
        space: the action space, Discrete or Box.
        given: control -> action of a Discrete space, or moves of a Box space, as `--keys` of the command takes them.
        declared: the keys that the environment declares for Discrete actions. They are used if none are given.

    Raises:
        SettingsError: the space is another one, or a control, an action or a dimension does not exist.
    """
    for key, meaning in given.items():
        if key not in (*KEYS, "none") and not GAMEPAD.fullmatch(key):
            raise SettingsError(f"--keys {shown(f'{key}={meaning}')}: keys are {ACCEPTED}")
    if isinstance(space, Discrete):
        return _choosing(space, given, declared)
    if isinstance(space, Box) and space.low.size:
        return _moving(space, given)
    raise SettingsError(f"--human plays Discrete and Box actions, this environment has {space}; record an agent")


def _choosing(space: Discrete, given: Mapping[str, int | str], declared: Mapping[str, int]) -> tuple[Player, str]:
    first, last = space.start, space.start + space.n - 1
    table = {key: _action(key, str(action), first, last) for key, action in given.items()}
    if not table:
        table = dict(declared) or {str(at): first + at for at in range(min(10, space.n))}
    none = table.get("none", min(table.values()))

    def act(held: Held, begins: bool) -> NDArray[np.generic]:
        return np.array([next((action for key, action in table.items() if held.get(key, 0) > PRESSED), none)])

    return act, ", ".join(f"{key}={action}" for key, action in ({"none": none} | table).items())


def _action(key: str, text: str, first: int, last: int) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text) or not first <= int(text) <= last:
        raise SettingsError(f"--keys {shown(f'{key}={text}')}: the environment has the actions {first} to {last}")
    return int(text)


def _moving(space: Box, given: Mapping[str, int | str]) -> tuple[Player, str]:
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    low, high = np.where(np.isfinite(low), low, -math.inf), np.where(np.isfinite(high), high, math.inf)
    ends = np.where(np.isinf(low), np.minimum(-1, high), low), np.where(np.isinf(high), np.maximum(1, low), high)
    moves = [(key, move) for key, text in given.items() for move in _moves(key, str(text), (low, high), ends[1])]
    rest = np.clip(np.zeros_like(low), low, high)
    for key, move in moves:
        if key == "none":
            rest[move.dimension] = move.value
    active = [(key, move) for key, move in moves if key != "none"] or list(_usual(*ends, rest))
    place, whole = rest.copy(), np.issubdtype(np.dtype(space.dtype), np.integer)

    def act(held: Held, begins: bool) -> NDArray[np.generic]:
        nonlocal place
        place = rest.copy() if begins else place
        for key, move in active:
            if move.stays:
                place[move.dimension] += held.get(key, 0.0) * move.value
        place = np.clip(place, low, high)
        action = place.copy()
        for key, move in active:
            if not move.stays:
                action[move.dimension] += held.get(key, 0.0) * (move.value - rest[move.dimension])
        action = np.clip(action, low, high)
        return (action.round() if whole else action).astype(dtype_of(space)).reshape(1, *space.shape)

    return act, ", ".join(f"{key}={_text(move)}" for key, move in active)


def _moves(
    key: str, text: str, bounds: tuple[NDArray[np.float64], NDArray[np.float64]], full: NDArray[np.float64]
) -> Iterable[Move]:
    """Read `DIMENSION`, `DIMENSION:VALUE` or `DIMENSION+STEP`, several with commas; `full` [D] are the values without one."""
    asked, last = f"--keys {shown(f'{key}={text}')}", len(full) - 1
    for part in text.split(","):
        if (found := MOVE.fullmatch(part.strip())) is None or (key == "none" and found[2] is None):
            form = "DIMENSION:VALUE" if key == "none" else "DIMENSION, DIMENSION:VALUE or DIMENSION+STEP"
            raise SettingsError(f"{asked} is not {key}={form}, e.g. --keys left=0:-1, as the actions are numbers")
        at = int(found[1])
        if at > last:
            raise SettingsError(f"{asked}: the action has the dimensions 0 to {last}")
        move = Move(at, float(found[2] or found[3] or full[at]), stays=found[3] is not None)
        low, high = bounds[0][at], bounds[1][at]
        if not math.isfinite(move.value) or not (move.stays or low <= move.value <= high):
            raise SettingsError(f"{asked}: dimension {at} goes from {low:g} to {high:g}")
        yield move


def _usual(
    low: NDArray[np.float64], high: NDArray[np.float64], rest: NDArray[np.float64]
) -> Iterable[tuple[str, Move]]:
    """The key map if none is given: pairs of keys, and the sticks of a gamepad. Bounds and rest are [D]."""
    for at, (down, up) in enumerate(PAIRS[: len(rest)]):
        ends = ((down, low[at]), (up, high[at]))
        yield from ((key, Move(at, float(end))) for key, end in ends if end != rest[at])
        if at < len(STICKS):
            # half an axis for each end: the ends of a dimension may differ in their distance from rest
            halves = (f"axis{at}-", f"axis{at}+")[:: STICKS[at]]
            yield from (
                (half, Move(at, float(end))) for half, (_, end) in zip(halves, ends, strict=True) if end != rest[at]
            )


def _text(move: Move) -> str:
    return f"{move.dimension}{move.value:+g}" if move.stays else f"{move.dimension}:{move.value:g}"
