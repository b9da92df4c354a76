"""Schedules of settings and frequencies of training, and the forms in which settings give them. Imports no torch.

A schedule can be written as a number (`3e-4`), a string (`"lin_3e-4"`: falls linearly to 0), a table
(`{kind = "linear", start = 3e-4, end = 1e-5}`) or an object of this module. Nothing is ever evaluated as code.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Protocol, runtime_checkable

import attrs

from rlsdk.errors import SettingsError, shown, suggest


@runtime_checkable
class Schedule(Protocol):
    """A function from `progress_remaining`, which falls from 1 at the start of training to 0 at its end, to a value."""

    def __call__(self, progress_remaining: float) -> float: ...

    def to_setting(self) -> object:
        """Return the value that a settings file stores; `rlsdk.settings.schedules.as_schedule` reads it."""
        ...


@attrs.frozen
class Constant:
    """A schedule that always returns `value`."""

    value: float = attrs.field(converter=float)

    def __call__(self, progress_remaining: float) -> float:
        return self.value

    def to_setting(self) -> object:
        return self.value


@attrs.frozen
class Linear:
    """A linear schedule from `start` to `end`. It reaches `end` after the share `until` of training, then stays constant."""

    start: float = attrs.field(converter=float)
    end: float = attrs.field(default=0.0, converter=float)
    until: float = attrs.field(default=1.0, converter=float)

    def __attrs_post_init__(self) -> None:
        if not 0.0 < self.until <= 1.0:
            raise SettingsError(f"Linear: until must be in (0, 1], got {self.until}; it is a share of the training")

    def __call__(self, progress_remaining: float) -> float:
        done = min(1.0, (1.0 - progress_remaining) / self.until)
        return self.start + done * (self.end - self.start)

    def to_setting(self) -> object:
        if (self.end, self.until) == (0.0, 1.0):
            return f"lin_{self.start!r}"
        return {"kind": "linear", "start": self.start, "end": self.end, "until": self.until}


def _points(value: Iterable[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((float(done), float(level)) for done, level in value)


MAX_POINTS = 10_000


@attrs.frozen
class Piecewise:
    """A piecewise linear schedule through `points`: pairs (share of training done, value). It is constant outside them."""

    points: tuple[tuple[float, float], ...] = attrs.field(converter=_points)

    def __attrs_post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if len(shares) > MAX_POINTS:
            raise SettingsError(f"Piecewise: {len(shares)} points; at most {MAX_POINTS} are possible")
        if not shares or shares != sorted(shares) or not 0.0 <= shares[0] <= shares[-1] <= 1.0:
            raise SettingsError(f"Piecewise: points need rising shares of training within [0, 1], got {shares}")

    def __call__(self, progress_remaining: float) -> float:
        done = 1.0 - progress_remaining
        right = bisect_right([share for share, _ in self.points], done)
        if right == 0:
            return self.points[0][1]
        if right == len(self.points):
            return self.points[-1][1]
        (left_share, left), (right_share, level) = self.points[right - 1], self.points[right]
        return left + (level - left) * (done - left_share) / (right_share - left_share)

    def to_setting(self) -> object:
        return {"kind": "piecewise", "points": [list(point) for point in self.points]}


@attrs.frozen
class Custom:
    """A schedule that calls a user's function. Agent files cannot store it; give it again when loading."""

    function: Callable[[float], float]

    def __call__(self, progress_remaining: float) -> float:
        return float(self.function(progress_remaining))

    def to_setting(self) -> object:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return {"kind": "custom", "name": name}


ScheduleLike = float | str | Mapping[str, object] | Schedule | Callable[[float], float]
KINDS: dict[str, Callable[..., Schedule]] = {"constant": Constant, "linear": Linear, "piecewise": Piecewise}


def as_schedule(value: ScheduleLike) -> Schedule:
    """Return the schedule for a value in any of the accepted forms.

    >>> as_schedule("lin_3e-4")(0.5)
    0.00015

    Raises:
        SettingsError: the value has none of the accepted forms.
    """
    # In Python True is an int, and would be the schedule 1.0.
    if isinstance(value, bool):
        raise SettingsError(f"{value!r} is not a schedule; {ACCEPTED}")
    if isinstance(value, int | float):
        return Constant(value)
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Mapping):
        return _from_table(value)
    # Before `callable`: these can be called too.
    if isinstance(value, Constant | Linear | Piecewise | Custom):
        return value
    if callable(value):
        return value if isinstance(value, Schedule) else Custom(value)
    raise SettingsError(f"{value!r} is not a schedule; {ACCEPTED}")


ACCEPTED = (
    'write a number, "lin_3e-4", {kind = "linear", start = 3e-4, end = 1e-5}, or give a function of progress remaining'
)


def _from_text(text: str) -> Schedule:
    try:
        return Linear(float(text[4:])) if text.startswith("lin_") else Constant(float(text))
    except ValueError:
        raise SettingsError(f"{text!r} is not a schedule; {ACCEPTED}") from None


def _from_table(table: Mapping[str, object]) -> Schedule:
    values = dict(table)
    kind = values.pop("kind", None)
    if kind == "custom":
        raise SettingsError(f"the schedule {values.get('name')!r} was a function and is not stored; pass it again")
    if kind is None:
        raise SettingsError(f"the schedule {shown(dict(table))} has no kind; {ACCEPTED}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"unknown schedule kind {kind!r}; {suggest(str(kind), KINDS)}")
    try:
        return KINDS[kind](**values)
    except (TypeError, ValueError) as error:
        names = list(signature(KINDS[kind]).parameters)
        raise SettingsError(f"a {kind} schedule takes {names}: {error}") from None


UNITS = ("step", "episode")


@attrs.frozen
class TrainFrequency:
    """Number of vector steps or finished episodes (`unit`: step or episode) between two rounds of updates."""

    count: int
    unit: str

    def to_setting(self) -> object:
        return self.count if self.unit == "step" else [self.count, self.unit]


def as_train_frequency(value: int | Sequence[object] | TrainFrequency) -> TrainFrequency:
    """Return a training frequency: 4 means every 4 vector steps, (1, "episode") means after each episode.

    Raises:
        SettingsError: the count is not positive, or the unit is unknown.
    """
    if isinstance(value, TrainFrequency):
        return value
    pair = (value, "step") if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    if len(pair) == 2 and not isinstance(value, str):
        count, unit = pair
        if (
            isinstance(count, int)
            and not isinstance(count, bool)
            and count >= 1
            and isinstance(unit, str)
            and unit in UNITS
        ):
            return TrainFrequency(count, unit)
    raise SettingsError(f'train_freq {value!r} must be a positive whole number or a pair such as (1, "episode")')
