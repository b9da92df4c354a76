"""A schedule: a hyper-parameter as a function of the training that remains. Torch-free."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs


@runtime_checkable
class Schedule(Protocol):
    """A value for each `progress_remaining`, which falls from 1 at the start of training to 0 at its end."""

    def __call__(self, progress_remaining: float) -> float: ...

    def to_setting(self) -> object:
        """What is written to a settings file; `rlsdk.settings.schedules.as_schedule` reads it back."""
        ...


@attrs.frozen
class Constant:
    """Always `value`."""

    value: float = attrs.field(converter=float)

    def __call__(self, progress_remaining: float) -> float:
        return self.value

    def to_setting(self) -> object:
        return self.value
