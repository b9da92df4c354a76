"""Callbacks of stable-baselines3: its base classes, their adapter to `rlsdk.callbacks.Callback`, and its names of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, cast

from rlsdk.callbacks import (
    Callback,
    EveryNSteps,
    LogEveryNSteps,
    ProgressBar,
    StepCounter,
    StopOnMaxEpisodes,
    StopOnNoImprovement,
    StopOnRewardThreshold,
    says_stop,
)
from rlsdk.callbacks import EvalCallback as Evaluating
from rlsdk.errors import SettingsError
from rlsdk.evaluation import Evaluation
from rlsdk.records import EnvStep, Report
from rlsdk.sinks import Logger
from rlsdk_sb3.steps import Locals, require_two_arguments, values_of
from rlsdk_sb3.vector import NumpyVectorEnv

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.callbacks import Run

LogEveryNTimesteps = LogEveryNSteps
ProgressBarCallback = ProgressBar
StopTrainingOnMaxEpisodes = StopOnMaxEpisodes
StopTrainingOnRewardThreshold = StopOnRewardThreshold


def StopTrainingOnNoModelImprovement(  # noqa: N802  # the name in stable-baselines3
    max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0
) -> StopOnNoImprovement:
    """A callback that stops after more than `max_no_improvement_evals` evaluations in a row without a better mean return; the
    first `min_evals` do not count."""
    return StopOnNoImprovement(max_no_improvement_evals + 1, start_after=min_evals, verbose=verbose)


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
        "writer": run.logger.writer,
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
        function = callable(callback) and not isinstance(callback, Callback) and not is_documented(callback)
        given = [] if function else _flat(callback)
        own = [child for child in given if isinstance(child, Callback)]
        self.at_steps = [adapted_callback(child, self) for child in given if not isinstance(child, Callback)]
        self.at_rounds = EveryNSteps(n_steps, callback if function else own) if function or own else None
        self.counter = StepCounter(n_steps, "EveryNTimesteps n_steps")
        self.needs_infos = bool(self.at_steps)

    @property
    def n_steps(self) -> int:
        """The number of environment steps between two calls."""
        return self.counter.every

    @n_steps.setter
    def n_steps(self, value: int) -> None:
        self.counter = self.counter.changed(value)
        if self.at_rounds is not None:
            self.at_rounds.n_steps = value

    @property
    def watches_steps(self) -> bool:
        return bool(self.at_steps)

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps, run.agent.context.num_envs if self.at_steps else 0)
        for child in self.at_steps:
            child.on_training_start(run)
        return None if self.at_rounds is None else self.at_rounds.on_training_start(run)

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        if not self.counter.due(run.num_timesteps):
            return None
        answers = [child.trigger(run, step) for child in self.at_steps]
        return not any(map(says_stop, answers))

    def on_report(self, run: Run, report: Report) -> bool | None:
        return None if self.at_rounds is None else self.at_rounds.on_report(run, report)

    def on_training_end(self, run: Run) -> bool | None:
        for child in self.at_steps:
            child.on_training_end(run)
        return None if self.at_rounds is None else self.at_rounds.on_training_end(run)


def _flat(callback: object) -> list[object]:
    """The callbacks in nested lists."""
    return [one for item in callback for one in _flat(item)] if isinstance(callback, list | tuple) else [callback]


# two levels below `Callback`, as users of stable-baselines3 derive from this class, and both need what the first one does
class EvalCallback(Evaluating):
    """`rlsdk.callbacks.EvalCallback` with the values and methods that stable-baselines3 documents.

    A subclass may override the methods of `BaseCallback` and read its values. A subclass with `_on_step` evaluates only in
    `super()._on_step()`, after every `eval_freq` calls of it: the interval then counts vector steps, as in stable-baselines3.
    """

    calls_hooks = True
    own_step: ClassVar[bool] = False
    """Whether the class overrides `_on_step`, which then decides when to evaluate."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.own_step = cls._on_step is not EvalCallback._on_step
        cls.needs_infos = cls.needs_infos or cls.own_step

    @property
    def evaluations_timesteps(self) -> list[int]:
        """The number of environment steps at each evaluation of this callback."""
        return [steps for steps, _ in self.history]

    @property
    def evaluations_results(self) -> list[list[float]]:
        """The returns of the episodes of each evaluation."""
        return [list(result.returns) for _, result in self.history]

    @property
    def evaluations_length(self) -> list[list[int]]:
        """The lengths of the episodes of each evaluation."""
        return [list(result.lengths) for _, result in self.history]

    @property
    def evaluations_successes(self) -> list[list[bool | None]]:
        """Whether each episode of each evaluation was a success; None for episodes that did not report it."""
        return [[episode.success for episode in result.episodes] for _, result in self.history]

    @property
    def log_path(self) -> Path | None:
        """The file with the results of all evaluations; None if they are not written."""
        return None if self.log is None else self.log.path

    @cached_property
    def hooks(self) -> Hooks:
        """The values that the methods of a `BaseCallback` read."""
        return Hooks(self)

    @cached_property
    def documented(self) -> AdaptedCallback:
        """What calls the methods of a `BaseCallback`."""
        return AdaptedCallback(self.hooks)

    @property
    def watches_steps(self) -> bool:
        return self.own_step or type(self).on_step is not EvalCallback.on_step

    @property
    def watches_rollouts(self) -> bool:
        names = ("on_rollout_end", "_on_rollout_end")
        return any(getattr(type(self), name) is not getattr(EvalCallback, name) for name in names)

    def __getattr__(self, name: str) -> Any:
        known = name in HOOK_VALUES
        if known and (name not in ("model", "logger", "training_env") or hasattr(self.hooks, "model")):
            return getattr(self.hooks, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{' before training' if known else ''}")

    def on_training_start(self, run: Run) -> bool | None:
        self.documented.on_training_start(run)
        return super().on_training_start(run)

    def on_rollout_start(self, run: Run) -> None:
        self.documented.on_rollout_start(run)

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        return self.documented.on_step(run, step) if self.own_step else None

    def on_rollout_end(self, run: Run) -> None:
        self.documented.on_rollout_end(run)

    def on_report(self, run: Run, report: Report) -> bool | None:
        self.documented.on_report(run, report)
        self._count(run)
        return True if self.own_step else super().on_report(run, report)

    def on_training_end(self, run: Run) -> bool | None:
        answer = super().on_training_end(run)
        self._count(run)
        self.documented.on_training_end(run)
        return answer

    def _count(self, run: Run) -> None:
        """Update `n_calls` and `num_timesteps` once per round instead of at each step, which would cost time."""
        if not self.own_step:
            self.hooks.n_calls += (run.num_timesteps - self.hooks.num_timesteps) // run.agent.context.num_envs
            self.hooks.num_timesteps = run.num_timesteps

    def _init_callback(self) -> None: ...

    def _on_training_start(self) -> None: ...

    def _on_rollout_start(self) -> None: ...

    def _on_step(self) -> bool:
        return self.hooks.n_calls % self.eval_freq != 0 or self.evaluate(self.hooks.locals["run"])

    def _on_rollout_end(self) -> None: ...

    def _on_training_end(self) -> None: ...


MaskableEvalCallback = EvalCallback
