"""Building blocks of config classes: documented fields and validators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import attrs

from rlsdk.errors import closest, shown
from rlsdk.settings.schedules import Piecewise, Schedule

Validator = Callable[[object, "attrs.Attribute[Any]", object], None]
Affects = Literal["training", "speed", "memory", "logging", "device", "refusals"]
"""What a setting changes:

- `training`: what is learned or done.
- `speed`: the speed of the same computation. Results are the same up to rounding.
- `memory`: the memory that is used. Results are identical bit for bit.
- `logging`: what is logged. Results are identical bit for bit.
- `device`: the device of the computation. Results are the same up to rounding.
- `refusals`: which environments and data raise an error. Results are identical bit for bit.
"""
MEMORY = "memory"
"""Argument of `needs` for settings that have an effect only in policies with a memory."""


def described(  # all arguments except the text have defaults
    text: str,
    *,
    unit: str = "",
    source: str = "",
    tune: tuple[float, float] | None = None,
    affects: Affects = "training",
    examples: tuple[object, ...] = (),
) -> dict[str, object]:
    """Return field metadata: the meaning of a hyper-parameter, its unit, the source of its default and a range for tuning.

    Fields of names that many algorithms have, such as `gamma`, `learning_rate`, `n_steps` or `policy_kwargs`, need none.

    The contract kit reads `affects` and `examples`. `affects` is what the setting changes. `examples` are values other than the
    default, each of which has that effect. Give them if valid values do not follow from the type: names, tables and classes.

    Raises:
        ValueError: `affects` is unknown.
    """
    if affects not in get_args(Affects):
        raise ValueError(f"affects = {affects!r} of the setting {text!r} is not one of {', '.join(get_args(Affects))}")
    about = {"unit": unit, "source": source, "tune": tune, "affects": affects, "examples": examples}
    return {"help": text, **about, "needs": ""}


def needs(what: str) -> dict[str, object]:
    """Return metadata of a hyper-parameter that has an effect only with another one: `described(..) | needs("use_sde")`.

    `what` is the setting of the algorithm that must be true, or "memory". Agents warn if the hyper-parameter is changed without
    `what`.
    """
    return {"needs": what}


FLOAT32_MAX = 3.4028234663852886e38
"""The largest number in float32, in which training computes. torch raises an error for larger ones."""
LARGEST = 1e18
"""The default bound of numbers: int64 holds it, and float32 its square, so squared gradients of weighted losses are finite."""


def is_float32(value: float) -> bool:
    """Whether a number is finite in float32."""
    return -FLOAT32_MAX <= value <= FLOAT32_MAX  # unlike math.isfinite, this takes whole numbers of any size


def in_range(
    low: float = -LARGEST, high: float = LARGEST, *, open_low: bool = False, open_high: bool = False
) -> Validator:
    """Return a validator of finite numbers between `low` and `high`. None passes, for optional fields."""
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"

    def check(_: object, attribute: attrs.Attribute[object], value: object) -> None:
        if value is None:
            return
        if not isinstance(value, int | float):
            raise TypeError(f"{attribute.name} = {value!r} is not a number")
        above = low < value if open_low else low <= value
        if not (above and (value < high if open_high else value <= high)):  # NaN is neither
            raise ValueError(f"{attribute.name} = {shown(value, 60)} is outside {interval}")

    return check


REMAINING = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the training at which schedules are asked before it: few, as a function of the user may be slow or print."""


def finite_schedule(*, positive: bool = True) -> Validator:
    """Return a validator of schedules: every value must be finite and not negative.

    With `positive`, the value at the start of training must be greater than 0.
    """

    def check(_: object, attribute: attrs.Attribute[object], value: object) -> None:
        if not isinstance(value, Schedule):
            raise TypeError(f"{attribute.name} = {value!r} is not a schedule")
        # Between its corners a piecewise schedule is linear, so its extreme values are there.
        corners = [1.0 - done for done, _ in value.points] if isinstance(value, Piecewise) else []
        levels = [_level(value, attribute.name, remaining) for remaining in (*corners, *REMAINING)]
        if wrong := [level for level in levels if not is_float32(level) or level < 0.0]:
            raise ValueError(f"{attribute.name} must stay finite and not negative, but reaches {shown(min(wrong), 60)}")
        if positive and levels[-1] <= 0.0:
            raise ValueError(f"{attribute.name} = {levels[-1]!r} must be positive when training starts")

    return check


def _level(schedule: Schedule, name: str, remaining: float) -> float:
    """Return the schedule's value; raise ValueError if the user's function fails."""
    try:
        return schedule(remaining)
    except Exception as error:  # any error of the user's function
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{name} fails where {remaining:g} of the training remains: {problem}") from None


@attrs.frozen
class Choice:
    """Validator of values from a list; `choice` makes it."""

    options: tuple[object, ...]

    def __call__(self, _: object, attribute: attrs.Attribute[object], value: object) -> None:
        if value not in self.options:
            known = ", ".join(map(repr, self.options))
            near = closest(value, map(str, self.options)) if isinstance(value, str) else None
            hint = f"; did you mean {near!r}?" if near is not None else ""
            raise ValueError(f"{attribute.name} = {shown(value, 60)} is not one of {known}{hint}")


def choice(*options: object) -> Validator:
    """Return a validator of values from a short list."""
    return Choice(options)


Fields = list["attrs.Attribute[object]"]


@attrs.frozen
class Default:
    """A new default value, and its source."""

    value: object
    source: str = ""


def defaults(**changes: object) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that changes defaults. Each is a value, or a `Default` with its source.

    The order of the parameters does not change.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        if unknown := sorted(set(changes) - {field.name for field in fields}):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, whose defaults are given")
        # marked as not inherited: attrs ignores inherited fields when a class derives from this one
        own = [field.evolve(inherited=False) for field in fields]
        return [_with(field, changes[field.name]) if field.name in changes else field for field in own]

    return changed


def positional_after(**places: str) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that makes inherited keyword-only fields positional.

    `positional_after(n_steps="optimize_memory_usage")` puts `n_steps` after `optimize_memory_usage`.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        known = {field.name: field.evolve(inherited=False) for field in fields}
        if unknown := sorted({*places, *places.values()} - set(known)):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, which are to be positional")
        order = [name for name in known if name not in places]
        for name, before in places.items():
            order.insert(order.index(before) + 1, name)
        return [known[name].evolve(kw_only=False) if name in places else known[name] for name in order]

    return changed


def without(*names: str) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that leaves out inherited fields, which are then no settings.

    `attrs.frozen(field_transformer=without("tau"))` makes a config class of an off-policy algorithm without a target network.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        if unknown := sorted(set(names) - {field.name for field in fields}):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, which are to be left out")
        # A base class may list settings that this class does not have.
        kind.LIVE = tuple(name for name in getattr(kind, "LIVE", ()) if name not in names)  # type: ignore[attr-defined]
        return [field.evolve(inherited=False) for field in fields if field.name not in names]

    return changed


def _with(field: attrs.Attribute[object], change: object) -> attrs.Attribute[object]:
    given = change if isinstance(change, Default) else Default(change)
    metadata = {**field.metadata, "source": given.source} if given.source else field.metadata
    return field.evolve(default=given.value, metadata=metadata)
