"""The search space: every hyper-parameter whose field has `tune=(low, high)`, in a config class or its nested tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from rlsdk.settings import FieldDoc, describe


class Suggests(Protocol):
    """The methods of Optuna's trial that are used."""

    def suggest_categorical(self, name: str, choices: Sequence[int], /) -> int: ...

    def suggest_int(self, name: str, low: int, high: int, /) -> int: ...

    def suggest_float(self, name: str, low: float, high: float, /, *, log: bool) -> float: ...


@attrs.frozen
class Range:
    """The range of a hyper-parameter. `name` is dotted if the field is in a nested table."""

    name: str
    low: float
    high: float
    whole: bool

    def suggest(self, trial: Suggests) -> float:
        """Return a value for this trial.

        - Whole numbers: a power of two, if `low` is one and the range contains more than three; else uniform.
        - Numbers close to 1 (0.8 to 1, such as discounts): logarithmic in the difference from 1.
        - Other numbers: logarithmic if `high` is at least ten times `low`, else uniform.
        """
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
    """Return the ranges of a config class, except for the names in `fixed`."""
    known = set(fixed)
    return tuple(found for found in _ranges(describe(kind), "") if found.name not in known)


def _ranges(fields: Iterable[FieldDoc], prefix: str) -> list[Range]:
    found = []
    for field in fields:
        found += _ranges(field.children, f"{prefix}{field.name}.")
        if field.tune is not None:
            whole = isinstance(field.default, int) and not isinstance(field.default, bool)
            found.append(Range(prefix + field.name, float(field.tune[0]), float(field.tune[1]), whole))
    return found
