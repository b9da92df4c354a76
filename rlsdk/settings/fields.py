"""What config classes are written with: documented fields and validators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import attrs

from rlsdk.settings.schedule import Schedule
from rlsdk.settings.schedules import Piecewise

Validator = Callable[[object, "attrs.Attribute[Any]", object], None]


Affects = Literal["training", "speed", "memory", "logging", "device", "refusals"]
"""What a setting changes: `training` (what is learnt or done), the `speed` of the same computation (results are the same up to
rounding), the `memory` it takes or its `logging` (results are the same to the bit), the `device` it runs on (results are the
same up to rounding), or the `refusals`, which environments and data are an error (results are the same to the bit)."""

MEMORY = "memory"
"""What a setting needs that has an effect in policies with a memory only."""


def described(  # all but the text have defaults
    text: str,
    *,
    unit: str = "",
    source: str = "",
    tune: tuple[float, float] | None = None,
    affects: Affects = "training",
    examples: tuple[object, ...] = (),
) -> dict[str, object]:
    """Field metadata: what the hyper-parameter does, its unit, where its default comes from, a sensible tuning range.

    The contract kit reads `affects`, what the setting changes, and `examples`: values beside the default, each of which changes
    that. They are for settings whose values do not follow from the type, such as names, tables and classes.

    Raises:
        ValueError: an unknown `affects`.
    """
    if affects not in get_args(Affects):
        raise ValueError(f"affects = {affects!r} of the setting {text!r} is not one of {', '.join(get_args(Affects))}")
    return {"help": text, "unit": unit, "source": source, "tune": tune, "affects": affects, "examples": examples}


def needs(what: str) -> dict[str, object]:
    """Further metadata of a hyper-parameter, `described(..) | needs("use_sde")`, that has no effect otherwise: `what` is the
    setting of the algorithm that must be true, or `MEMORY`. Agents that change it without that warn."""
    return {"needs": what}


def in_range(
    low: float = -math.inf, high: float = math.inf, *, open_low: bool = False, open_high: bool = False
) -> Validator:
    """A validator for finite numbers between `low` and `high`; None passes (optional fields)."""
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"

    def check(_: object, attribute: attrs.Attribute[object], value: object) -> None:
        if value is None:
            return
        if not isinstance(value, int | float):
            raise TypeError(f"{attribute.name} = {value!r} is not a number")
        too_low = value <= low if open_low else value < low
        too_high = value >= high if open_high else value > high
        if not math.isfinite(value) or too_low or too_high:
            raise ValueError(f"{attribute.name} = {value!r} is outside {interval}")

    return check


REMAINING = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the training at which schedules are asked before it: few, as a function of the user may be slow or print."""


def finite_schedule(*, positive: bool = True) -> Validator:
    """A validator for schedules: every value of it is finite and not negative (the start is positive)."""

    def check(_: object, attribute: attrs.Attribute[object], value: object) -> None:
        if not isinstance(value, Schedule):
            raise TypeError(f"{attribute.name} = {value!r} is not a schedule")
        corners = [1.0 - done for done, _ in value.points] if isinstance(value, Piecewise) else []
        levels = [_level(value, attribute.name, remaining) for remaining in (*corners, *REMAINING)]
        if wrong := [level for level in levels if not math.isfinite(level) or level < 0.0]:
            raise ValueError(f"{attribute.name} must stay finite and not negative, but reaches {min(wrong)}")
        if positive and levels[-1] <= 0.0:
            raise ValueError(f"{attribute.name} = {levels[-1]!r} must be positive when training starts")

    return check


def _level(schedule: Schedule, name: str, remaining: float) -> float:
    """The schedule's value; raises ValueError where a caller's function fails."""
    try:
        return schedule(remaining)
    except Exception as error:  # of the caller's function
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{name} fails where {remaining:g} of the training remains: {problem}") from None


@attrs.frozen
class Choice:
    """The validator that `choice` makes."""

    options: tuple[object, ...]

    def __call__(self, _: object, attribute: attrs.Attribute[object], value: object) -> None:
        if value not in self.options:
            raise ValueError(f"{attribute.name} = {value!r} is not one of {', '.join(map(repr, self.options))}")


def choice(*options: object) -> Validator:
    """A validator for values out of a short list."""
    return Choice(options)
