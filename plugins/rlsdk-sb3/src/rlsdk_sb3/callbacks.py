"""Callbacks of stable-baselines3: its base classes, their adapter to `rlsdk.callbacks.Callback`, intervals, stopping rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard, cast

from rlsdk.callbacks import Callback, LambdaCallback, ProgressBar, StepCounter, says_stop
from rlsdk.errors import SettingsError
from rlsdk.evaluation import Evaluation
from rlsdk.interfaces import explain_names
from rlsdk.records import EnvStep, Report
from rlsdk.runtime import print_line
from rlsdk.sinks import Logger
from rlsdk_sb3.loggers import writer_of
from rlsdk_sb3.steps import Locals, require_two_arguments, values_of
from rlsdk_sb3.vector import NumpyVectorEnv

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.callbacks import Run

ProgressBarCallback = ProgressBar


class BaseCallback:
    """The base class of callbacks with the interface of stable-baselines3. Override `_on_step` and other methods you need.

    `_on_step` returns False to end the training before the next step. `self.locals` contains `rewards`, `dones`, `infos`,
    `actions`, `clipped_actions` and `new_obs` of the last step (numpy, over the environments). It also contains `self` (the
    agent), `env`, `run`, `report`, `writer`, `total_timesteps` and `tb_log_name`.
    """

    model: Agent

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose
        self.n_calls = 0
        """The number of calls of `on_step`."""
        self.num_timesteps = 0
        """The number of environment steps of the agent."""
        self.locals: Locals = {}
        self.globals: Locals = {}
        self.parent: object = None
        """The callback that calls this one, such as an `EvalCallback`."""

    @property
    def training_env(self) -> NumpyVectorEnv | None:
        """The environment of the agent."""
        found: NumpyVectorEnv | None = self.model.get_env()
        return found

    @property
    def logger(self) -> Logger:
        """The logger of the agent: `self.logger.record("my/value", x)`."""
        return self.model.logger

    def init_callback(self, model: Agent) -> None:
        """Called when `learn` begins, before `on_training_start`."""
        self.model = model
        self._init_callback()

    def on_training_start(self, locals_: Locals, globals_: Locals) -> None:
        """Called before the first step of a training."""
        self.locals, self.globals = locals_, globals_
        self.num_timesteps = self.model.num_timesteps
        self._on_training_start()

    def on_rollout_start(self) -> None:
        """Called before each collection of steps."""
        self._on_rollout_start()

    def on_step(self) -> bool:
        """Called after every vector step, or by the parent callback when its event happens."""
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        return self._on_step()

    def on_rollout_end(self) -> None:
        """Called after each collection of steps, before the updates."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """Called when training ends."""
        self._on_training_end()

    def update_locals(self, locals_: Locals) -> None:
        """Add the values of a step to `locals`."""
        self.locals.update(locals_)
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: Locals) -> None:
        """Pass the values of a step to the callbacks that this one calls."""

    def _init_callback(self) -> None: ...

    def _on_training_start(self) -> None: ...

    def _on_rollout_start(self) -> None: ...

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None: ...

    def _on_training_end(self) -> None: ...


class EventCallback(BaseCallback):
    """A callback that calls another one at an event. Override `_on_step` and call `_on_event` in it to trigger the event."""

    def __init__(self, callback: BaseCallback | None = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        if callback is not None and not is_documented(callback):
            raise SettingsError(
                f"EventCallback needs a BaseCallback to call, got {callback!r}; pass others to learn itself"
            )
        self.callback = callback
        if callback is not None:
            callback.parent = self

    def init_callback(self, model: Agent) -> None:
        super().init_callback(model)
        if self.callback is not None:
            self.callback.init_callback(model)

    def _on_training_start(self) -> None:
        if self.callback is not None:
            self.callback.on_training_start(self.locals, self.globals)

    def _on_event(self) -> bool:
        return True if self.callback is None else self.callback.on_step()

    def update_child_locals(self, locals_: Locals) -> None:
        if self.callback is not None:
            self.callback.update_locals(locals_)


class FunctionCallback(BaseCallback):
    """Adapts a function `f(locals, globals) -> bool`, which is called after every step; see `BaseCallback` for `locals`."""

    def __init__(self, function: Callable[[Locals, Locals], object]) -> None:
        super().__init__()
        self.function = function

    def _on_step(self) -> bool:
        return cast("bool", self.function(self.locals, self.globals))  # None does not stop the training


HOOKS = ("_init_callback", "_on_training_start", "_on_rollout_start", "_on_step", "_on_rollout_end", "_on_training_end")
"""The methods of a `BaseCallback` that users override."""


class Hooks(BaseCallback):
    """A `BaseCallback` that calls the methods of `owner` and stores the values that these methods read."""

    def __init__(self, owner: Callback) -> None:
        super().__init__()
        for name in HOOKS:  # on this object: they take the place of the empty ones of the class
            setattr(self, name, getattr(owner, name))


HOOK_VALUES = ("model", "n_calls", "num_timesteps", "locals", "globals", "logger", "training_env")
"""The attributes of a `BaseCallback` that its methods may read."""


class AdaptedCallback(Callback):
    """Adapts a `BaseCallback`, or an object with its methods, to `Callback`. With a `parent`, only the parent's event calls its
    `on_step`."""

    needs_infos = True

    def __init__(self, inner: BaseCallback, parent: object = None) -> None:
        self.inner, self.child = inner, parent is not None
        if parent is not None:
            inner.parent = parent

    @property
    def watches_steps(self) -> bool:
        return not self.child

    @property
    def watches_rollouts(self) -> bool:
        return not self.child

    def on_training_start(self, run: Run) -> None:
        self.inner.init_callback(cast("Agent", run.agent))
        self.inner.on_training_start({**_training_values(run), "callback": self.inner}, {})

    def on_rollout_start(self, run: Run) -> None:
        if not self.child:
            self.inner.on_rollout_start()

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        answer: bool | None = None
        if not self.child:
            self.inner.update_locals(values_of(run, step))
            answer = self.inner.on_step()
        return answer

    def on_rollout_end(self, run: Run) -> None:
        if not self.child:
            self.inner.on_rollout_end()

    def on_report(self, run: Run, report: Report) -> None:
        self.inner.update_locals({"report": report})

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        return self.trigger(run) if self.child else None

    def trigger(self, run: Run, step: EnvStep | None = None) -> bool | None:
        """Call `on_step` for an event of the parent callback, with the values of `step` if there is one."""
        if step is not None:
            self.inner.update_locals(values_of(run, step))
        answer: bool | None = self.inner.on_step()
        return answer

    def on_training_end(self, run: Run) -> None:
        self.inner.on_training_end()


def is_documented(value: object) -> TypeGuard[BaseCallback]:
    """Whether `value` is an object with the methods of `BaseCallback`."""
    names = ("init_callback", "on_training_start", "on_step", "update_locals")
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def _training_values(run: Run) -> Locals:
    """The entries of `locals` that are known when training starts."""
    agent = run.agent
    return {
        "self": agent,
        "run": run,
        "report": None,
        "env": agent.get_env(),
        "writer": writer_of(run.logger),
        "total_timesteps": run.total_timesteps + agent.num_timesteps,
        "reset_num_timesteps": agent.num_timesteps == 0,
        "tb_log_name": run.tb_log_name,
        "log_interval": run.log_interval,
        "n_steps": 0,
    }


def adapted_callback(value: object, parent: object = None) -> AdaptedCallback:
    """The `Callback` for a `BaseCallback`, an object with its methods, or a function `f(locals, globals) -> bool`.

    Args:
        value: the callback.
        parent: the callback that calls it; None if `learn` does.

    Raises:
        SettingsError: the value is something else.
    """
    if is_documented(value):
        return AdaptedCallback(value, parent)
    if callable(value):
        require_two_arguments(value)
        return AdaptedCallback(FunctionCallback(value), parent)
    raise SettingsError(f"{value!r} lacks methods of a callback; derive its class from rlsdk_sb3.BaseCallback")


class EveryNTimesteps(Callback):
    """Calls a function or callback every `n_steps` environment steps; training stops if it returns False.

    A function `f(run)`, or `on_report` of a `Callback`, is called at the end of the round in which the interval ends. `on_step`
    of a `BaseCallback` is called right after the step. A list has several callbacks.
    """

    def __init__(self, n_steps: int, callback: object) -> None:
        """Raises SettingsError if `callback` is neither a function nor a callback."""
        given = _flat(callback)
        if callable(callback) and not isinstance(callback, Callback) and not is_documented(callback):
            function = cast("Callable[[Run], bool | None]", callback)
            given = [LambdaCallback(on_report=lambda run, _: function(run))]
        self.at_rounds = [child for child in given if isinstance(child, Callback)]
        self.at_steps = [adapted_callback(child, self) for child in given if not isinstance(child, Callback)]
        # two, as each counts an interval once: one at steps, the other at the ends of rounds
        self.counter, self.rounds = (StepCounter(n_steps, "EveryNTimesteps n_steps") for _ in range(2))
        self.needs_infos = bool(self.at_steps)

    @property
    def n_steps(self) -> int:
        """The number of environment steps between two calls."""
        return self.counter.every

    @n_steps.setter
    def n_steps(self, value: int) -> None:
        self.counter, self.rounds = self.counter.changed(value), self.rounds.changed(value)

    @property
    def watches_steps(self) -> bool:
        return bool(self.at_steps)

    def on_training_start(self, run: Run) -> bool | None:
        if self.at_steps:
            self.counter.start(run.num_timesteps, run.agent.context.num_envs)
        if self.at_rounds:
            self.rounds.begin(run)
        answers = [child.on_training_start(run) for child in (*self.at_steps, *self.at_rounds)]
        return not any(map(says_stop, answers))

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        if not self.counter.due(run.num_timesteps):
            return None
        answers = [child.trigger(run, step) for child in self.at_steps]
        return not any(map(says_stop, answers))

    def on_report(self, run: Run, report: Report) -> bool | None:
        if not self.at_rounds or not self.rounds.due(run.num_timesteps):
            return None
        answers = [child.on_report(run, report) for child in self.at_rounds]
        return not any(map(says_stop, answers))

    def on_training_end(self, run: Run) -> bool | None:
        for child in (*self.at_steps, *self.at_rounds):
            child.on_training_end(run)
        return None


def _flat(callback: object) -> list[object]:
    """The callbacks in nested lists."""
    return [one for item in callback for one in _flat(item)] if isinstance(callback, list | tuple) else [callback]


class LogEveryNTimesteps(Callback):
    """Writes the metrics every `n_steps` environment steps, also within rounds, in addition to the logs of `log_interval`."""

    def __init__(self, n_steps: int) -> None:
        self.counter = StepCounter(n_steps, "LogEveryNTimesteps n_steps")

    def on_training_start(self, run: Run) -> None:
        self.counter.start(run.num_timesteps, run.agent.context.num_envs)

    def on_step(self, run: Run, step: EnvStep) -> None:
        if self.counter.due(run.num_timesteps):
            run.log()


SOURCES = ("evaluation", "training")


class StopTrainingOnRewardThreshold(Callback):
    """Stops training once the mean return of an evaluation, or of the recent training episodes, reaches `reward_threshold`.

    With `on="evaluation"` the run needs an `EvalCallback`. With `on="training"` training stops only when the window of recent
    episodes (`stats_window_size`) is full.
    """

    def __init__(self, reward_threshold: float, verbose: int = 0, *, on: str = "evaluation") -> None:
        if on not in SOURCES:
            raise SettingsError(f"StopTrainingOnRewardThreshold on = {on!r} must be one of {', '.join(SOURCES)}")
        self.reward_threshold, self.verbose, self.on = float(reward_threshold), verbose, on

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        return self.on != "evaluation" or self._continues(run, evaluation.mean)

    def on_report(self, run: Run, report: Report) -> bool | None:
        if (
            self.on != "training"
            or not report.episodes
            or len(run.episode_statistics.window) < (run.episode_statistics.window.maxlen or 1)
        ):
            return None
        mean = run.mean_return
        return mean is None or self._continues(run, mean)

    def _continues(self, run: Run, mean: float) -> bool:
        reached = mean >= self.reward_threshold
        if reached and self.verbose:
            print_line(
                f"training stops at step {run.num_timesteps}: the mean return {mean:.2f} has reached {self.reward_threshold}"
            )
        return not reached


class StopTrainingOnNoModelImprovement(Callback):
    """Stops training after more than `max_no_improvement_evals` evaluations in a row without a better mean return; the first
    `min_evals` do not count."""

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0) -> None:
        if max_no_improvement_evals < 0 or min_evals < 0:
            raise SettingsError(
                f"StopTrainingOnNoModelImprovement({max_no_improvement_evals}, min_evals={min_evals}): both must be at least 0"
            )
        self.max_no_improvement_evals, self.min_evals, self.verbose = max_no_improvement_evals, min_evals, verbose
        self.seen, self.since_best, self.best = 0, 0, float("-inf")

    def on_training_start(self, run: Run) -> bool | None:
        self.seen, self.since_best, self.best = 0, 0, float("-inf")
        return None

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        self.seen += 1
        better = evaluation.mean > self.best
        self.best = max(self.best, evaluation.mean)
        self.since_best = 0 if better or self.seen <= self.min_evals else self.since_best + 1
        ends = self.since_best > self.max_no_improvement_evals
        if ends and self.verbose:
            print_line(
                f"training stops at step {run.num_timesteps}: no better evaluation in the last {self.since_best}"
            )
        return not ends


class StopTrainingOnMaxEpisodes(Callback):
    """Stops training after `max_episodes` episodes, multiplied by the number of environments that are stepped together.

    Training ends before the next step; plans that play whole episodes finish the running ones first.
    """

    def __init__(self, max_episodes: int, verbose: int = 0) -> None:
        if isinstance(max_episodes, bool) or not isinstance(max_episodes, int) or max_episodes < 1:
            raise SettingsError(
                f"StopTrainingOnMaxEpisodes max_episodes = {max_episodes!r} must be a positive whole number"
            )
        self.max_episodes, self.verbose = max_episodes, verbose
        self.n_episodes = 0

    def on_training_start(self, run: Run) -> None:
        self.n_episodes = 0

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        self.n_episodes += len(step.episodes)
        # stable-baselines3 defines `max_episodes` per environment.
        over = self.n_episodes >= self.max_episodes * len(step.reward)
        if over and self.verbose:
            print_line(f"training stops at step {run.num_timesteps}: {self.n_episodes} episodes were played")
        return not over


@explain_names
class CallbackList(list[object]):
    """A list of callbacks that is passed as one callback; a plain list has the same effect."""

    @property
    def callbacks(self) -> list[object]:
        """The callbacks in this list."""
        return list(self)
