"""What is searched: every hyper-parameter whose field has `tune=(low, high)`, in a plugin's config class or its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from rlsdk.settings.render import default_of, parameters


class Suggests(Protocol):
    """The part of Optuna's trial that is used."""

    def suggest_categorical(self, name: str, choices: Sequence[int], /) -> int: ...

    def suggest_int(self, name: str, low: int, high: int, /) -> int: ...

    def suggest_float(self, name: str, low: float, high: float, /, *, log: bool) -> float: ...


@attrs.frozen
class Range:
    """Values a hyper-parameter may take; `name` is dotted where it lies in a table."""

    name: str
    low: float
    high: float
    whole: bool

    def suggest(self, trial: Suggests) -> float:
        """A value for this trial: powers of two where the range is made of them, logarithmic over decades, and for shares close
        to 1 (discounts) logarithmic in what is missing from 1."""
        if self.whole:
            low, high = int(self.low), int(self.high)
            powers = [2**k for k in range(20) if low <= 2**k <= high]
            if len(powers) > 3 and powers[0] == low:
                return int(trial.suggest_categorical(self.name, powers))
            return int(trial.suggest_int(self.name, low, high))
        if 0.8 <= self.low < self.high < 1.0:
            return 1.0 - float(trial.suggest_float(f"1 - {self.name}", 1.0 - self.high, 1.0 - self.low, log=True))
        decades = self.low > 0.0 and self.high / self.low >= 10.0
        return float(trial.suggest_float(self.name, self.low, self.high, log=decades))


def search_space(kind: type[object], fixed: Iterable[str] = ()) -> tuple[Range, ...]:
    """The ranges of a config class; the names in `fixed` are left out."""
    known = set(fixed)
    return tuple(found for found in _ranges(kind, "") if found.name not in known)


def _ranges(kind: type[object], prefix: str) -> list[Range]:
    found = []
    for field in parameters(kind):
        default = default_of(field)
        if attrs.has(type(default)) and not hasattr(default, "to_setting"):
            found += _ranges(type(default), f"{prefix}{field.name}.")
        elif (tune := field.metadata.get("tune")) is not None:
            whole = isinstance(default, int) and not isinstance(default, bool)
            found.append(Range(prefix + field.name, float(tune[0]), float(tune[1]), whole))
    return found
