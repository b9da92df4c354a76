"""What a callback is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.errors import SettingsError, suggest
from rlsdk.records import EnvStep, Episode, Report

if TYPE_CHECKING:
    from rlsdk.evaluate import Evaluation
    from rlsdk.train import Run


class Callback:
    """Override what you need; the methods here do nothing. One that returns False stops the training after the round.

    `run.num_timesteps` counts environment steps, the same for any number of environments.
    """

    def on_training_start(self, run: Run) -> bool | None:
        """Before the first step."""

    def on_rollout_start(self, run: Run) -> bool | None:
        """Before a round of collecting."""

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        """After every vector step. Costs nothing unless some callback overrides it."""

    def on_episode(self, run: Run, episode: Episode) -> bool | None:
        """After a round, for every episode that ended in it."""

    def on_update(self, run: Run, report: Report) -> bool | None:
        """After a round that updated the networks; `report.metrics` are means over its updates."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        """After every round of collecting and updating."""

    def on_log(self, run: Run, values: dict[str, float]) -> bool | None:
        """When metrics are about to be written; values may be added."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        """After an `EvalCallback` of this run has evaluated."""

    def on_checkpoint(self, run: Run, path: Path) -> bool | None:
        """After a `CheckpointCallback` of this run has written a file."""

    def on_training_end(self, run: Run) -> bool | None:
        """After the last step, also when training was stopped early or failed."""

    @property
    def watches_steps(self) -> bool:
        """Whether `on_step` does anything."""
        return type(self).on_step is not Callback.on_step


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class FunctionCallback(Callback):
    """A plain function `f(locals, globals) -> bool`; `locals` holds `self` (the agent), `run` and `report`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def on_report(self, run: Run, report: Report) -> bool | None:
        answer: bool | None = self.function({"self": run.agent, "run": run, "report": report}, {})
        return answer


class LambdaCallback(Callback):
    """A callback from functions: `LambdaCallback(on_episode=lambda run, episode: print(episode.episode_return))`."""

    def __init__(self, **functions: Callable[..., bool | None]) -> None:
        for name, function in functions.items():
            if name not in EVENTS:
                raise SettingsError(f"there is no event {name!r}; {suggest(name, EVENTS)}")
            setattr(self, name, function)

    @property
    def watches_steps(self) -> bool:
        return "on_step" in vars(self)


class StepCounter:
    """Says when another `every` environment steps have passed, whatever the size of the steps in between."""

    def __init__(self, every: int, name: str) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise SettingsError(f"{name} = {every!r} must be a positive number of environment steps")
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
