"""Something done every so many environment steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.train import Run


class EveryNSteps(Callback):
    """Calls `action(run)`, or `action.on_report`, every `every` environment steps; False stops the training."""

    def __init__(self, every: int, action: Callback | Callable[[Run], bool | None]) -> None:
        self.counter, self.action = StepCounter(every, "EveryNSteps every"), action

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps)
        return self.action.on_training_start(run) if isinstance(self.action, Callback) else None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if not self.counter.due(run.num_timesteps):
            return None
        return self.action.on_report(run, report) if isinstance(self.action, Callback) else self.action(run)

    def on_training_end(self, run: Run) -> bool | None:
        return self.action.on_training_end(run) if isinstance(self.action, Callback) else None


class ParameterHistograms(Callback):
    """Writes histograms of the policy's parameters every `every` environment steps, to sinks that can (TensorBoard).

    Raises SettingsError when training starts and no sink can.
    """

    def __init__(self, every: int) -> None:
        self.counter = StepCounter(every, "ParameterHistograms every")

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps)
        run.write_histograms()
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            run.write_histograms()
        return None
