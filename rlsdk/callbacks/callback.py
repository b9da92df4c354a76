"""The base class of callbacks, and a counter of environment steps for callbacks with an interval."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from rlsdk.errors import DivergenceError, SettingsError, UsageError, suggest
from rlsdk.interfaces.abilities import explain_names
from rlsdk.records import EnvStep, Episode, Report
from rlsdk.runtime.lazy import of_sb3
from rlsdk.training import OffPolicyPlan

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation
    from rlsdk.training.run import Run
    from rlsdk.training.trained_agent import DrivenAgent, TrainedAgent


@explain_names
class Callback:
    """The base class of callbacks. Its methods do nothing: override those that you need.

    A method that returns False stops the training: `on_step` before the next step, the others after the round. A round is one
    collection of steps and the updates after it. `run.num_timesteps` counts the steps of all environments.
    """

    needs_infos = False
    """Whether `on_step` needs `step.infos`; environments collect infos only if a callback needs them."""
    calls_hooks: ClassVar[bool] = False
    """Whether the methods of `rlsdk_sb3.BaseCallback`, such as `_on_step`, are also called."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Raise UsageError if the subclass has a method of stable-baselines3 that would never be called."""
        super().__init_subclass__(**kwargs)
        for name in () if cls.calls_hooks else vars(cls):
            event = "on_training_start" if name == "_init_callback" else name.removeprefix("_")
            if event != name and event in EVENTS:
                raise UsageError(
                    f"{cls.__name__}.{name} would never be called: a {cls.__mro__[1].__name__} is not a BaseCallback; override"
                    f" {event}(run{', step' * (event == 'on_step')}), on_report(run, report) or on_evaluation(run, evaluation),"
                    " or derive from rlsdk_sb3.BaseCallback or rlsdk_sb3.EvalCallback"
                )

    def on_training_start(self, run: Run) -> bool | None:
        """Called before the first step of a training."""

    def on_rollout_start(self, run: Run) -> bool | None:
        """Called before each collection of steps."""

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        """Called after every vector step; `step.action` holds the actions. It costs no time unless a callback overrides it.

        If it stops the training, the steps of the incomplete round are counted, and stored in a replay buffer, but no update
        follows. Plans that play whole episodes report their steps afterwards, one environment step [1] at a time.
        """

    def on_rollout_end(self, run: Run) -> bool | None:
        """Called after each collection of steps, before the updates."""

    def on_episode(self, run: Run, episode: Episode) -> bool | None:
        """Called after a round for every episode that ended in it."""

    def on_update(self, run: Run, report: Report) -> bool | None:
        """Called after a round that updated the networks; `report.metrics` are means over its updates."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        """Called after every round, with or without updates."""

    def on_divergence(self, run: Run, error: DivergenceError) -> bool | None:
        """Called when a metric or an action is NaN or infinite.

        Return True after restoring the agent: training continues with the next round. If no callback returns True, the error is
        raised.
        """

    def on_log(self, run: Run, values: dict[str, float]) -> bool | None:
        """Called before metrics are written; the callback may add entries to `values`."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        """Called after an `EvalCallback` of this run has evaluated the agent."""

    def on_checkpoint(self, run: Run, path: Path) -> bool | None:
        """Called after a `CheckpointCallback` of this run has written the file `path`."""

    def on_training_end(self, run: Run) -> bool | None:
        """Called when training ends, also if it was stopped early or failed."""

    def handles(self, event: str) -> bool:
        """Whether this callback overrides the method `event`, such as "on_update"; other methods are not called."""
        # Looked up on the object, not on its class: LambdaCallback stores functions there, which have no `__func__`.
        return getattr(getattr(self, event), "__func__", None) is not getattr(Callback, event)

    @property
    def watches_steps(self) -> bool:
        """Whether the class overrides `on_step`."""
        return type(self).on_step is not Callback.on_step

    @property
    def watches_rollouts(self) -> bool:
        """Whether the class overrides `on_rollout_end`."""
        return type(self).on_rollout_end is not Callback.on_rollout_end


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """A callback made from functions: `LambdaCallback(on_episode=lambda run, episode: print(episode.episode_return))`.

    With `needs_infos`, `on_step` gets the infos of steps.
    """

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


def steps_of_round(agent: DrivenAgent | TrainedAgent) -> int:
    """The environment steps (updates, if these are the plan's unit) of a round; 0 if rounds differ in length."""
    plan, num_envs = agent.parts.plan, agent.context.num_envs
    if isinstance(length := getattr(plan, "n_steps", None), int):
        # see `rlsdk.interfaces.PlanAbilities`
        return length * num_envs
    if isinstance(plan, OffPolicyPlan):
        return 0 if plan.episodes else plan.train_every * num_envs
    # of `rlsdk_datasets.OfflinePlan` and plans like it
    return int(getattr(plan, "updates_per_round", 0))


class StepCounter:
    """Counts intervals of `every` environment steps: `due(steps)` returns True once per interval that has passed."""

    def __init__(self, every: int, name: str) -> None:
        # In Python True is an int, and would be an interval of 1.
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise SettingsError(f"{name} = {every!r} must be a positive number of environment steps")
        self.every, self.passed, self.name = every, 0, name

    def changed(self, every: int) -> StepCounter:
        """A counter with another interval, which begins at the last multiple of the current one."""
        other = StepCounter(every, self.name)
        # From the last multiple: otherwise steps since then would not count for the new interval.
        other.start(self.passed * self.every)
        return other

    def begin(self, run: Run) -> None:
        """Begin with a training, whose rounds may be longer than the interval; see `start`."""
        self.start(run.num_timesteps, steps_of_round(run.driven))

    def start(self, steps: int, round_steps: int = 0) -> None:
        """Begin at `steps`. Warn if rounds of `round_steps` steps are longer than the interval, which then ends only with
        them; 0: the length of rounds is not known."""
        self.passed = steps // self.every
        if self.every < round_steps:
            warnings.warn(
                f"{self.name} = {self.every} takes effect only every {round_steps:,} steps, at the end of a round;"
                " raise it, or make rounds shorter where n_steps, train_freq or the number of environments sets their length",
                stacklevel=3,
            )

    def due(self, steps: int) -> bool:
        # One round may pass several intervals; the caller acts once for all of them.
        before, self.passed = self.passed, steps // self.every
        return self.passed > before


class ForeignCallback(Protocol):
    """A callback of stable-baselines3; the package rlsdk-sb3 has such classes, and adapts the objects."""

    @property
    def init_callback(self) -> Callable[..., object]: ...


def as_callbacks(value: object, parent: object = None) -> list[Callback]:
    """Convert an argument `callback` to a list of callbacks.

    Args:
        value: None, a callback, a function `f(locals, globals) -> bool`, or a list of these.
        parent: the callback that calls these callbacks; None if `learn` calls them.

    Raises:
        SettingsError: the value is something else.
    """
    if value is None:
        return []
    if isinstance(value, Callback):
        return [value]
    if isinstance(value, list | tuple):
        return [callback for item in value for callback in as_callbacks(item, parent)]
    if isinstance(value, type):
        raise SettingsError(f"callback {value.__name__} is a class; pass an instance: {value.__name__}(...)")
    if callable(value) or callable(getattr(value, "init_callback", None)):
        return [of_sb3("adapted_callback", "a function or a BaseCallback as callback")(value, parent)]
    raise SettingsError(
        f"{value!r} is not a callback; pass a Callback, an rlsdk_sb3.BaseCallback, a function f(locals, globals) -> bool, or a"
        " list of them"
    )
