"""The pieces a config class is written with: documented fields, validators, and the parameters all agents share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def described(
    text: str, *, unit: str = "", source: str = "", tune: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Field metadata: what the hyper-parameter does, its unit, where its default comes from, a sensible tuning range."""
    return {"help": text, "unit": unit, "source": source, "tune": tune}


def in_range(
    low: float = -math.inf, high: float = math.inf, *, open_low: bool = False, open_high: bool = False
) -> Validator:
    """A validator for finite numbers between `low` and `high`; None passes (optional fields)."""
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None:
            return
        too_low = value <= low if open_low else value < low
        too_high = value >= high if open_high else value > high
        if not math.isfinite(value) or too_low or too_high:
            raise ValueError(f"{attribute.name} = {value!r} is outside {interval}")

    return check


def finite_schedule(*, positive: bool = True) -> Validator:
    """A validator for schedules: every value of it is finite and not negative (the start is positive)."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        levels = [value(share / 20) for share in range(21)]
        if not all(math.isfinite(level) and level >= 0.0 for level in levels):
            raise ValueError(f"{attribute.name} must stay finite and not negative, but reaches {min(levels)}")
        if positive and value(1.0) <= 0.0:
            raise ValueError(f"{attribute.name} = {value(1.0)!r} must be positive when training starts")

    return check


def choice(*options: Any) -> Validator:
    """A validator for values out of a short list."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value not in options:
            raise ValueError(f"{attribute.name} = {value!r} is not one of {', '.join(map(repr, options))}")

    return check


@attrs.frozen
class AgentConfig:
    """The constructor parameters every algorithm has. An algorithm's config class derives from it and adds its own.

    The fields are, in order, the constructor's parameters: `policy` and `env` first, then the algorithm's own, then
    the keyword-only ones below.
    """

    policy: str = attrs.field(metadata=described("name of the policy, e.g. MlpPolicy"))
    env: Any = attrs.field(
        default=None,
        metadata=described("gymnasium id, environment, vector environment, or None to load for prediction only"),
    )
    tensorboard_log: str | None = attrs.field(
        default=None, kw_only=True, metadata=described("folder for metrics of `learn`; None writes no files")
    )
    verbose: int = attrs.field(
        default=0, kw_only=True, validator=choice(0, 1, 2), metadata=described("0 silent, 1 training table, 2 debug")
    )
    seed: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=in_range(0, 2**32 - 1),
        metadata=described("seed of every random stream; None draws one from the operating system"),
    )
    device: str = attrs.field(
        default="auto", kw_only=True, metadata=described("torch device; auto chooses by a stated rule")
    )
    stats_window_size: int = attrs.field(
        default=100,
        kw_only=True,
        validator=in_range(1),
        metadata=described("finished episodes over which returns, lengths and successes are averaged", unit="episodes"),
    )
