"""Callbacks that act at intervals of environment steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from rlsdk.callbacks.accepted import as_callbacks
from rlsdk.callbacks.callback import Callback, StepCounter, steps_of_round
from rlsdk.callbacks.documented import DocumentedCallback, is_documented
from rlsdk.records import EnvStep, Report
from rlsdk.training.run import Run, says_stop


class EveryNSteps(Callback):
    """Calls a function or callback every `n_steps` environment steps; training stops if it returns False.

    A function `f(run)`, or `on_report` of a `Callback`, is called at the end of the round in which the interval ends. `on_step`
    of a `BaseCallback` is called right after the step.
    """

    def __init__(self, n_steps: int, callback: object) -> None:
        self.rounds, self.steps = (StepCounter(n_steps, "EveryNSteps n_steps") for _ in range(2))
        nested = isinstance(callback, Callback | list | tuple) or is_documented(callback)
        self.function = None if nested else cast("Callable[[Run], bool | None]", callback)
        self.children = as_callbacks(callback, self) if nested else []
        self.at_steps = [child for child in self.children if isinstance(child, DocumentedCallback)]
        self.at_rounds = [child for child in self.children if not isinstance(child, DocumentedCallback)]
        self.needs_infos = bool(self.at_steps)

    @property
    def n_steps(self) -> int:
        """The number of environment steps between two calls."""
        return self.rounds.every

    @n_steps.setter
    def n_steps(self, value: int) -> None:
        self.rounds, self.steps = self.rounds.changed(value), self.steps.changed(value)

    @property
    def watches_steps(self) -> bool:
        return bool(self.at_steps)

    def on_training_start(self, run: Run) -> bool | None:
        self.rounds.start(run.num_timesteps, steps_of_round(run.driven) if self.function or self.at_rounds else 0)
        self.steps.start(run.num_timesteps, run.agent.context.num_envs if self.at_steps else 0)
        answers = [child.on_training_start(run) for child in self.children]
        return not any(map(says_stop, answers))

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        if not self.steps.due(run.num_timesteps):
            return None
        answers = [child.trigger(run, step) for child in self.at_steps]
        return not any(map(says_stop, answers))

    def on_report(self, run: Run, report: Report) -> bool | None:
        if not self.rounds.due(run.num_timesteps):
            return None
        if self.function is not None:
            return self.function(run)
        answers = [child.on_report(run, report) for child in self.at_rounds]
        return not any(map(says_stop, answers))

    def on_training_end(self, run: Run) -> bool | None:
        for child in self.children:
            child.on_training_end(run)
        return None


class LogEveryNSteps(Callback):
    """Writes the metrics every `n_steps` environment steps, also within rounds, in addition to the logs of `log_interval`."""

    def __init__(self, n_steps: int) -> None:
        self.counter = StepCounter(n_steps, "LogEveryNSteps n_steps")

    def on_training_start(self, run: Run) -> None:
        self.counter.start(run.num_timesteps, run.agent.context.num_envs)

    def on_step(self, run: Run, step: EnvStep) -> None:
        if self.counter.due(run.num_timesteps):
            run.log()


class ParameterHistograms(Callback):
    """Writes histograms of the policy's parameters every `every` environment steps to sinks that support them (TensorBoard).

    Raises SettingsError at the start of training if no sink supports histograms.
    """

    def __init__(self, every: int) -> None:
        self.counter = StepCounter(every, "ParameterHistograms every")

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps, steps_of_round(run.driven))
        run.write_histograms()
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            run.write_histograms()
        return None
