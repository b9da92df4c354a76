"""The base class of callbacks, and a counter of environment steps for callbacks with an interval."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeGuard, cast

from rlsdk.environments import NumpyVectorEnv
from rlsdk.errors import DivergenceError, SettingsError, UsageError, suggest
from rlsdk.interfaces.abilities import explaining
from rlsdk.records import EnvStep, Episode, Report
from rlsdk.sinks import Logger
from rlsdk.training import OffPolicyPlan
from rlsdk.training.trained_agent import Locals, TrainedAgent, require_two_arguments

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation
    from rlsdk.training.run import Run
    from rlsdk.training.trained_agent import DrivenAgent, TrainedAgent

HOOKS = {
    "_on_step": "on_step(run, step)",
    "_init_callback": "on_training_start(run)",
    "_on_training_start": "on_training_start(run)",
    "_on_rollout_start": "on_rollout_start(run)",
    "_on_rollout_end": "on_rollout_end(run)",
    "_on_training_end": "on_training_end(run)",
}
"""Method that users override in a `BaseCallback` -> the corresponding method of a `Callback`."""
explains_documented_members = explaining(
    {
        **dict.fromkeys(
            ("globals", "locals", "update_child_locals", "update_locals"), "derive from BaseCallback: it has locals"
        ),
        "callback": "pass several callbacks to learn as a list",
        "init_callback": "on_training_start(run) is called first",
        "logger": "run.agent.logger is it: every event gets the run",
        "model": "run.agent is it: every event gets the run",
        "n_calls": "run.num_timesteps counts environment steps; on_step counts calls where a callback needs them",
        "num_timesteps": "run.num_timesteps is it: every event gets the run",
        "parent": "no callback calls another here: run.notify(event, ...) calls the other callbacks of the run",
        "training_env": "run.agent.get_env() is it: every event gets the run",
    }
)
"""A class decorator: access to one of these members of a `BaseCallback` raises an error which names the replacement."""


@explains_documented_members
class Callback:
    """The base class of callbacks. Its methods do nothing: override those that you need.

    A method that returns False stops the training: `on_step` before the next step, the others after the round. A round is one
    collection of steps and the updates after it. `run.num_timesteps` counts the steps of all environments.
    """

    needs_infos = False
    """Whether `on_step` needs `step.infos`; environments collect infos only if a callback needs them."""
    calls_hooks: ClassVar[bool] = False
    """Whether the methods of `BaseCallback`, such as `_on_step`, are also called."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Raise UsageError if the subclass has a method of `BaseCallback` that would never be called."""
        super().__init_subclass__(**kwargs)
        silent = [name for name in HOOKS if name in vars(cls) and not cls.calls_hooks]
        if silent:
            raise UsageError(
                f"{cls.__name__}.{silent[0]} would never be called: a {cls.__mro__[1].__name__} is not a BaseCallback; override"
                f" {HOOKS[silent[0]]}, on_report(run, report) or on_evaluation(run, evaluation), or derive from BaseCallback"
            )

    def on_training_start(self, run: Run) -> bool | None:
        """Called before the first step of a training."""

    def on_rollout_start(self, run: Run) -> bool | None:
        """Called before each collection of steps."""

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        """Called after every vector step; `step.action` holds the actions. It costs no time unless a callback overrides it.

        If it stops the training, the steps of the incomplete round are counted, and stored in a replay buffer, but no update
        follows. Population methods run whole episodes first and report their steps afterwards, one environment step [1] at a
        time.
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
    if isinstance(length := getattr(plan, "n_steps", None), int):  # see `rlsdk.interfaces.PlanAbilities`
        return length * num_envs
    if isinstance(plan, OffPolicyPlan):
        return 0 if plan.episodes else plan.train_every * num_envs
    return int(getattr(plan, "updates_per_round", 0))  # of `rlsdk_datasets.OfflinePlan` and plans like it


class StepCounter:
    """Counts intervals of `every` environment steps: `due(steps)` returns True once per interval that has passed."""

    def __init__(self, every: int, name: str) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise SettingsError(f"{name} = {every!r} must be a positive number of environment steps")
        self.every, self.passed, self.name = every, 0, name

    def changed(self, every: int) -> StepCounter:
        """A counter with another interval, which begins at the last multiple of the current one."""
        other = StepCounter(every, self.name)
        other.start(self.passed * self.every)
        return other

    def start(self, steps: int, round_steps: int = 0) -> None:
        """Begin at `steps`. Warn if rounds of `round_steps` steps are longer than the interval, which then ends only with
        them; 0: the length of rounds is not known."""
        self.passed = steps // self.every
        if self.every < round_steps:
            warnings.warn(
                f"{self.name} = {self.every} takes effect only every {round_steps:,} steps, at the end of a round;"
                " raise it, or make rounds shorter with a smaller n_steps or fewer environments",
                stacklevel=3,
            )

    def due(self, steps: int) -> bool:
        before, self.passed = self.passed, steps // self.every
        return self.passed > before


class Documented(Protocol):
    """The methods that stable-baselines3 documents for callbacks; `BaseCallback` has them."""

    parent: object

    def init_callback(self, model: TrainedAgent) -> object: ...

    def on_training_start(self, locals_: Locals, globals_: Locals) -> object: ...

    def on_rollout_start(self) -> object: ...

    def on_step(self) -> bool: ...

    def on_rollout_end(self) -> object: ...

    def on_training_end(self) -> object: ...

    def update_locals(self, locals_: Locals) -> object: ...


class BaseCallback:
    """The base class of callbacks with the interface of stable-baselines3. Override `_on_step` and other methods you need.

    `_on_step` returns False to end the training before the next step. `self.locals` contains `rewards`, `dones`, `infos`,
    `actions`, `clipped_actions` and `new_obs` of the last step (numpy, over the environments). It also contains `self` (the
    agent), `env`, `run`, `report`, `writer`, `total_timesteps` and `tb_log_name`.
    """

    model: TrainedAgent

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
        return self.model.get_env()

    @property
    def logger(self) -> Logger:
        """The logger of the agent: `self.logger.record("my/value", x)`."""
        return self.model.logger

    def init_callback(self, model: TrainedAgent) -> None:
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

    def __init__(self, callback: Documented | None = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        if callback is not None and not is_documented(callback):
            raise SettingsError(
                f"EventCallback needs a BaseCallback to call, got {callback!r}; pass others to learn itself"
            )
        self.callback = callback
        if callback is not None:
            callback.parent = self

    def init_callback(self, model: TrainedAgent) -> None:
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


class HasHooks(Protocol):
    """A callback whose subclasses may override methods of `BaseCallback`."""

    def _init_callback(self) -> None: ...
    def _on_training_start(self) -> None: ...
    def _on_rollout_start(self) -> None: ...
    def _on_step(self) -> bool: ...
    def _on_rollout_end(self) -> None: ...
    def _on_training_end(self) -> None: ...


class Hooks(BaseCallback):
    """A `BaseCallback` that calls the methods of `owner` and stores the values that these methods read."""

    def __init__(self, owner: HasHooks) -> None:
        super().__init__()
        self.owner = owner

    def _init_callback(self) -> None:
        self.owner._init_callback()

    def _on_training_start(self) -> None:
        self.owner._on_training_start()

    def _on_rollout_start(self) -> None:
        self.owner._on_rollout_start()

    def _on_step(self) -> bool:
        return self.owner._on_step()

    def _on_rollout_end(self) -> None:
        self.owner._on_rollout_end()

    def _on_training_end(self) -> None:
        self.owner._on_training_end()


HOOK_VALUES = ("model", "n_calls", "num_timesteps", "locals", "globals", "logger", "training_env")
"""The attributes of a `BaseCallback` that its methods may read."""


class DocumentedCallback(Callback):
    """Adapts a `BaseCallback`, or an object with its methods, to `Callback`. With a `parent`, only the parent's event calls its
    `on_step`."""

    needs_infos = True

    def __init__(self, inner: Documented, parent: object = None) -> None:
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
        self.inner.init_callback(run.agent)
        self.inner.on_training_start({**_training_values(run), "callback": self.inner}, {})

    def on_rollout_start(self, run: Run) -> None:
        if not self.child:
            self.inner.on_rollout_start()

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        answer: bool | None = None
        if not self.child:
            self.inner.update_locals(run.values_of(step))
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
            self.inner.update_locals(run.values_of(step))
        answer: bool | None = self.inner.on_step()
        return answer

    def on_training_end(self, run: Run) -> None:
        self.inner.on_training_end()


def is_documented(value: object) -> TypeGuard[Documented]:
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


@explains_documented_members
class CallbackList(list[object]):
    """A list of callbacks that is passed as one callback; a plain list has the same effect."""

    @property
    def callbacks(self) -> list[object]:
        """The callbacks in this list."""
        return list(self)


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
    if is_documented(value):
        return [DocumentedCallback(value, parent)]
    if isinstance(value, type):
        raise SettingsError(f"callback {value.__name__} is a class; pass an instance: {value.__name__}(...)")
    if callable(value):
        require_two_arguments(value)
        return [DocumentedCallback(FunctionCallback(value), parent)]
    raise SettingsError(
        f"{value!r} is not a callback; pass a Callback, a BaseCallback, a function f(locals, globals) -> bool, or a list of"
        " them"
    )
