"""A schedule: a hyper-parameter as a function of the remaining training progress. Imports no torch."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs


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
