"""The base class of callbacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlsdk.errors import DivergenceError, SettingsError, UsageError, suggest
from rlsdk.records import EnvStep, Episode, Report

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation
    from rlsdk.training.run import Run


HOOKS = {
    "_on_step": "on_step(run, step)",
    "_init_callback": "on_training_start(run)",
    "_on_training_start": "on_training_start(run)",
    "_on_rollout_start": "on_rollout_start(run)",
    "_on_rollout_end": "on_rollout_end(run)",
    "_on_training_end": "on_training_end(run)",
}
"""Methods that users override in a `BaseCallback` -> those of a `Callback`."""


class Callback:
    """Override what you need; the methods here do nothing. One that returns False stops the training: `on_step` before the
    next step, the others after the round.

    `run.num_timesteps` counts environment steps, the same for any number of environments.
    """

    needs_infos = False
    """Whether `on_step` needs `step.infos`: environments collect infos only then."""
    calls_hooks: ClassVar[bool] = False
    """Whether methods of `BaseCallback`, such as `_on_step`, are called too."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Raises UsageError when the class has a method that would never be called."""
        super().__init_subclass__(**kwargs)
        silent = [name for name in HOOKS if name in vars(cls) and not cls.calls_hooks]
        if silent:
            raise UsageError(
                f"{cls.__name__}.{silent[0]} would never be called: a {cls.__mro__[1].__name__} is not a BaseCallback; override"
                f" {HOOKS[silent[0]]}, on_report(run, report) or on_evaluation(run, evaluation), or derive from BaseCallback"
            )

    def on_training_start(self, run: Run) -> bool | None:
        """Before the first step."""

    def on_rollout_start(self, run: Run) -> bool | None:
        """Before a round of collecting."""

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        """After every vector step; `step.action` are the actions taken. Without cost unless a callback overrides it.

        A round that ends here before it is complete is counted (and remembered, off-policy), and not learnt from.
        Population methods play whole episodes first and report their steps afterwards, one environment step [1] at a time.
        """

    def on_rollout_end(self, run: Run) -> bool | None:
        """After a round of collecting, before the update that learns from it."""

    def on_episode(self, run: Run, episode: Episode) -> bool | None:
        """After a round, for every episode that ended in it."""

    def on_update(self, run: Run, report: Report) -> bool | None:
        """After a round that updated the networks; `report.metrics` are means over its updates."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        """After every round of collecting and updating."""

    def on_divergence(self, run: Run, error: DivergenceError) -> bool | None:
        """When a metric or an action is NaN or infinite. True: this callback has restored the agent, training
        continues with the next round. If no callback returns True, the error is raised."""

    def on_log(self, run: Run, values: dict[str, float]) -> bool | None:
        """When metrics are about to be written; values may be added."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        """After an `EvalCallback` of this run has evaluated."""

    def on_checkpoint(self, run: Run, path: Path) -> bool | None:
        """After a `CheckpointCallback` of this run has written a file."""

    def on_training_end(self, run: Run) -> bool | None:
        """After the last step, also when training was stopped early or failed."""

    def handles(self, event: str) -> bool:
        """Whether the method `event`, such as "on_update", does anything; the others are not called."""
        return getattr(getattr(self, event), "__func__", None) is not getattr(Callback, event)

    @property
    def watches_steps(self) -> bool:
        """Whether `on_step` does anything."""
        return type(self).on_step is not Callback.on_step

    @property
    def watches_rollouts(self) -> bool:
        """Whether `on_rollout_end` does anything."""
        return type(self).on_rollout_end is not Callback.on_rollout_end


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """A callback from functions: `LambdaCallback(on_episode=lambda run, episode: print(episode.episode_return))`; with
    `needs_infos` steps carry infos."""

    def __init__(self, *, needs_infos: bool = False, **functions: Callable[..., bool | None]) -> None:
        self.needs_infos = needs_infos
        for name, function in functions.items():
            if name not in EVENTS:
                raise SettingsError(f"there is no event {name!r}; {suggest(name, EVENTS)}")
            setattr(self, name, function)

    @property
    def watches_steps(self) -> bool:
        return "on_step" in vars(self)

    @property
    def watches_rollouts(self) -> bool:
        return "on_rollout_end" in vars(self)


class StepCounter:
    """True when another `every` environment steps have passed, for vector steps of any size."""

    def __init__(self, every: int, name: str) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise SettingsError(f"{name} = {every!r} must be a positive number of environment steps")
        self.every, self.passed, self.name = every, 0, name

    def changed(self, every: int) -> StepCounter:
        """One with another period, which begins where this one is."""
        other = StepCounter(every, self.name)
        other.start(self.passed * self.every)
        return other

    def start(self, steps: int) -> None:
        self.passed = steps // self.every

    def due(self, steps: int) -> bool:
        before, self.passed = self.passed, steps // self.every
        return self.passed > before
