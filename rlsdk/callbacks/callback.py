"""What a callback is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlsdk.errors import SettingsError
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.train import Run


class Callback:
    """Override what you need; the methods here do nothing. Returning False from `on_report` stops the training."""

    def on_training_start(self, run: Run) -> None:
        """Before the first step."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        """After every round of collecting and updating."""

    def on_log(self, run: Run, values: dict[str, float]) -> None:
        """When metrics are about to be written; values may be added."""

    def on_training_end(self, run: Run) -> None:
        """After the last step, also when training was stopped early or failed."""


class FunctionCallback(Callback):
    """A plain function `f(locals, globals) -> bool`; `locals` holds `self` (the agent), `run` and `report`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def on_report(self, run: Run, report: Report) -> bool | None:
        answer: bool | None = self.function({"self": run.agent, "run": run, "report": report}, {})
        return answer


class StepCounter:
    """Says when another `every` environment steps have passed, whatever the size of the steps in between."""

    def __init__(self, every: int, name: str) -> None:
        if every < 1:
            raise SettingsError(f"{name} = {every} must be a positive number of environment steps")
        self.every, self.passed = every, 0

    def start(self, steps: int) -> None:
        self.passed = steps // self.every

    def due(self, steps: int) -> bool:
        before, self.passed = self.passed, steps // self.every
        return self.passed > before


def as_callbacks(value: Any) -> list[Callback]:
    """None, a callback, a function, or a list of these, as a list of callbacks.

    Raises:
        SettingsError: something else.
    """
    if value is None:
        return []
    if isinstance(value, Callback):
        return [value]
    if isinstance(value, list | tuple):
        return [callback for item in value for callback in as_callbacks(item)]
    if callable(value):
        return [FunctionCallback(value)]
    raise SettingsError(
        f"{value!r} is no callback; pass a Callback, a function f(locals, globals) -> bool, or a list of them"
    )
