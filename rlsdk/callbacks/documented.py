"""Callbacks with the interface of stable-baselines3: such callbacks work here once their import is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeGuard, cast

from rlsdk.callbacks.callback import Callback
from rlsdk.environments import NumpyVectorEnv
from rlsdk.errors import SettingsError
from rlsdk.records import EnvStep, Report
from rlsdk.sinks import Logger
from rlsdk.training.step_values import Locals
from rlsdk.training.trained_agent import TrainedAgent

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation
    from rlsdk.training.run import Run


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
