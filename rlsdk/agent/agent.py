"""Agent: the user-facing class over the parts. A plugin's own class binds its spec and adds nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import torch

from rlsdk.agent import attributes, persistence
from rlsdk.agent.arguments import check_learn_arguments, positive, without_effect
from rlsdk.agent.attributes import DeviceName, setting_names
from rlsdk.agent.creation import assemble, described, warn_of_small_minibatches
from rlsdk.agent.learning import Request, run_training
from rlsdk.agent.loggers import as_logger, dump_logs
from rlsdk.agent.offline_updates import update_from_memory
from rlsdk.agent.prediction import predict
from rlsdk.agent.reconfiguration import change_settings
from rlsdk.agent.resumption import StoredCursor, leave_episodes
from rlsdk.agent.session import Session
from rlsdk.agent.stored_replay import load_replay_buffer, require_room, restore_replay, save_replay_buffer
from rlsdk.agent.switch_environment import numpy_environment, require_same_spaces, switch_environment
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.callbacks import BaseCallback, Callback, ProgressBar, as_callbacks
from rlsdk.compilation import compiling
from rlsdk.constructor import bind, class_only
from rlsdk.environments import NumpyVectorEnv, connect, to_gymnasium
from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.masks import MaskGate
from rlsdk.environments.observations import Stacker
from rlsdk.environments.requests import without_requests
from rlsdk.errors import UsageError
from rlsdk.loops import Cursor
from rlsdk.parts import Facts, Parts
from rlsdk.preparation import Normalizer, Preparation
from rlsdk.seeding import Streams, derive
from rlsdk.settings import structure
from rlsdk.sinks import Logger, MetricSink
from rlsdk.train import Run

if TYPE_CHECKING:
    from rlsdk.registry import AlgorithmSpec


class Agent:
    """An algorithm with its environment, networks and memory. Make one with a plugin's class or `rlsdk.make`."""

    spec: ClassVar[AlgorithmSpec]
    policy_aliases: ClassVar[Mapping[str, str]] = {}
    """The names that `policy` may have."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "spec" in vars(cls):
            cls.policy_aliases = {name: name for name in cls.spec.policies}

    env_name: str | None
    """The id the environment was made from, None where it was no id."""
    facts: Facts
    parts: Parts
    preparation: Preparation
    masks: MaskGate
    streams: Streams
    device_reason: str
    cursor: Cursor | None
    run: Run | None
    """The training that is going on."""
    in_round: bool
    """Whether the environments have gone further than `cursor`."""
    _config: Any
    _env: Any
    _seed: int
    built: Parts
    """The parts as the plugin built them, without what prepares observations."""
    _made_as: list[str]
    """The layers that the settings made; see `require_same_layers`."""
    _stored_cursor: StoredCursor | None
    _stored_log: Mapping[str, Any] | None
    _pending_replay: Callable[[], Mapping[str, Any] | None] | None
    _logger: Logger
    _logger_was_set: bool
    _step_offset: int
    decode_action: ActionDecoder
    _stack: Stacker
    standing: Any
    """Of the environments when the last training ended."""
    numpy_env: NumpyVectorEnv | None
    start_time: int
    """When `learn` was last called, nanoseconds since 1970; 0 before."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config = bind(self.spec.config_type, args, without_effect(self.spec, kwargs))
        if config.env is None:
            raise UsageError(
                "an agent needs an environment to learn in; env=None is for load(path), which knows the spaces"
            )
        bare, requests = without_requests(config.env)
        env = connect(bare, self.spec.default_envs)
        for request in requests:
            config = request.applied_to(config)
        assemble(self, config, (env.observation_space, env.action_space), env.num_envs, env)
        self.masks.check_environment(env)
        require_room(self)
        warn_of_small_minibatches(self)

    def __getattr__(self, name: str) -> Any:
        return attributes.read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        attributes.write(self, name, value)

    def __dir__(self) -> list[str]:
        return attributes.names(self)

    def __repr__(self) -> str:
        return described(self)

    # --- what the agent is ---------------------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        """Every setting, as a record; assigning one changes the settings that differ."""
        return self._config

    @config.setter
    def config(self, value: Any) -> None:
        change_settings(self, {name: getattr(value, name) for name in setting_names(type(self.config))})

    @property
    def env(self) -> Any:
        """The training environment, None if there is none; assigning one is `set_env(env)`."""
        return self._env

    @env.setter
    def env(self, value: Any) -> None:
        self.set_env(value)

    @property
    def seed(self) -> int:
        """What the random streams started from."""
        return self._seed

    @property
    def device(self) -> DeviceName:
        """Where networks are; equal to a text such as "cpu" and to the `torch.device` of that name."""
        return DeviceName(self.facts.device)

    @property
    def observation_space(self) -> Any:
        """The gymnasium space of observations."""
        return to_gymnasium(self.facts.observation_space)

    @property
    def action_space(self) -> Any:
        """The gymnasium space of actions."""
        return to_gymnasium(self.facts.action_space)

    @property
    def policy(self) -> Any:
        """The policy part."""
        return self.parts.policy

    @property
    def replay_buffer(self) -> Any:
        """The replay memory, None for algorithms without one."""
        restore_replay(self)
        return self.parts.buffer

    @property
    def num_timesteps(self) -> int:
        """Environment steps since training began, or since `learn(reset_num_timesteps=True)` was last called."""
        steps = self._total_steps - self._step_offset
        return steps if self.run is None else steps + self.run.steps_in_round

    @num_timesteps.setter
    def num_timesteps(self, value: int) -> None:
        self._step_offset = self._total_steps - positive(value, "num_timesteps", least=0)

    @property
    def _total_steps(self) -> int:
        if self.cursor is not None:
            return self.cursor.env_steps
        return self._stored_cursor.env_steps if self._stored_cursor else 0

    def derived_seed(self, name: str) -> int:
        """The seed of the agent's stream `name`, for what must not disturb the others."""
        return derive(self.seed, name) % 2**32

    # --- learning ------------------------------------------------------------------------------------------------

    @in_plain_modes
    def learn(  # noqa: PLR0913  # the documented signature
        self,
        total_timesteps: float,
        callback: Callback | BaseCallback | Callable[..., Any] | list[Any] | None = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        threads: int | None = 1,
        compile: str = "off",  # noqa: A002  # torch's own word
        **documented: Any,
    ) -> Self:
        """Train for `total_timesteps` more environment steps; returns the agent itself.

        Args:
            total_timesteps: environment steps over all environments; a whole number, 1e6 too.
            callback: a `Callback` or `BaseCallback`, a function `f(locals, globals) -> bool`, or a list of these.
            log_interval: finished episodes between two logs (default 4); rounds for the other families (default 1).
            tb_log_name: name of the run under `tensorboard_log`.
            reset_num_timesteps: count from 0 again; False continues the count and the curve.
            progress_bar: show progress on standard error.
            threads: torch threads while training; None leaves torch's setting alone.
            compile: "default" or "max" = hot functions go through torch.compile, which takes up to a minute before the
                first update; "off" = nothing is compiled.
            documented: `eval_env` and others of the documented library, where they ask for nothing (see compatibility).

        Raises:
            UsageError: no environment, or a documented argument without counterpart. SettingsError: a count that is not
            positive, an unknown way to compile.
            EnvironmentFault: the environment misbehaved. DivergenceError: a loss became NaN. ResourceError: the replay
            buffer does not fit.
        """
        check_learn_arguments(self.spec, documented, progress_bar)
        callbacks = [*as_callbacks(callback), *([ProgressBar()] if progress_bar else [])]
        name = tb_log_name or self.spec.id.upper()
        with compiling(compile):
            run_training(self, Request(total_timesteps, log_interval, name, reset_num_timesteps, threads), callbacks)
        return self

    @in_plain_modes
    def train(self, gradient_steps: int | None = None, batch_size: int | None = None) -> Mapping[str, float]:
        """Update `gradient_steps` times from the replay buffer, without any environment; returns the mean metrics.

        Raises:
            UsageError: the algorithm has no replay buffer, or it is empty. SettingsError: a count that is not positive.
        """
        return update_from_memory(self, gradient_steps, batch_size)

    # --- acting --------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """(actions, next state) for one observation or a batch of them, in numpy; for Dict and Tuple actions a dict or
        tuple of arrays, a list of them for a batch.

        Args:
            observation: of the observation space, or stacked on one more leading axis.
            state: what the last call returned, for policies with a memory; None begins new episodes.
            episode_start: bool per observation, True where an episode has just begun.
            deterministic: the policy's mode instead of a sample.
            action_masks: bool [A], or one per observation, True where allowed; "none" restricts nothing. Algorithms that
                need masks refuse to go without.

        Raises:
            ObservationError: a shape, key or value outside the space. MaskError: a mask is missing or unusable.
        """
        return predict(self, observation, state, episode_start, deterministic, action_masks)

    def session(self, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> Session:
        """A session that acts for `n` environments and remembers for the caller what the policy needs remembered."""
        generator = torch.Generator(device=self.device)
        generator.manual_seed(self.derived_seed("session") if seed is None else seed)
        return Session(
            self.parts.policy, self.facts, n, deterministic=deterministic, generator=generator, masks=self.masks
        )

    # --- environment ---------------------------------------------------------------------------------------------

    def get_env(self) -> NumpyVectorEnv | None:
        """The training environment, stepped with numpy arrays; None if there is none. `agent.env` is what algorithms step.

        Stepping or resetting it ends the episodes training was in the middle of: the next `learn` begins new ones.
        """
        return numpy_environment(self)

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Train on another environment from now on, with the same spaces.

        Args:
            env: anything the constructor takes.
            force_reset: reset it when training goes on; False goes on from the last observation.

        Raises:
            UnsupportedSpaceError: other spaces. UsageError: another number of environments with a filled buffer.
        """
        switch_environment(self, env, force_reset=force_reset)
        restore_replay(self)

    def require_same_spaces(self, envs: Any, what: str) -> None:
        """Raises UnsupportedSpaceError when `envs` has other spaces than the agent."""
        require_same_spaces(self, envs, what)

    @property
    def normalizer(self) -> Normalizer | None:
        """The running statistics of observations and rewards, with helpers to apply and to undo them; None without."""
        return self.preparation.normalizer

    def get_vec_normalize_env(self) -> Normalizer | None:
        """The normaliser: it belongs to the agent, not to a wrapper of its environment."""
        return self.normalizer

    def set_random_seed(self, seed: int | None = None) -> None:
        """Start every random stream of the agent, and its environments at their next reset, from `seed`; None: do nothing."""
        if seed is not None:
            self._seed = structure({"policy": self.config.policy, "seed": seed}, type(self.config)).seed
            self.streams.reseed(self.seed)

    # --- parameters and files --------------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, Any]:
        """Name -> state of every network and optimiser; tensors are the live ones, copy what you keep."""
        return {"policy": dict(self.parts.policy.state_dict()), **self.parts.algorithm.state_dict()}

    def set_parameters(
        self,
        load_path_or_dict: str | Path | IO[bytes] | Mapping[str, Any],
        exact_match: bool = True,
        device: str = "auto",
    ) -> None:
        """Replace parameters in place, from an agent file or a mapping as `get_parameters` returns it.

        Args:
            load_path_or_dict: the source.
            exact_match: every module must be given; False takes what is there and keeps the rest.
            device: accepted for compatibility; parameters stay on the agent's device.

        Raises:
            ArtifactError: names or shapes that do not fit; the agent is unchanged then.
        """
        persistence.set_parameters(self, load_path_or_dict, exact_match=exact_match)

    def save(
        self, path: str | Path | IO[bytes], exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None:
        """Write the agent to a file (`.rlsdk` is appended to names without it) or a binary file object.

        Sections are `policy` (always), `training` (unless excluded) and `replay` (only if included). Names of attributes may be
        excluded too: settings are stored all the same, for a file without them is no agent.

        Returns:
            Where the file is; None for a file object.

        Raises:
            ArtifactError: the place cannot be written; what was there is untouched.
        """
        return persistence.save_as_asked(self, path, exclude, include)

    @class_only
    def load(  # the documented signature
        cls,  # noqa: N805
        path: str | Path | IO[bytes],
        env: Any = None,
        device: str = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """A new agent from a file; without `env` it can predict.

        Args:
            path: file name (`.rlsdk` may be left out), Path or binary file object.
            env: environment to go on learning in; must have the same spaces.
            device: torch device.
            custom_objects: setting name (dotted) -> value, for classes and functions that files do not hold.
            print_system_info: print the versions the file was made with, and those here.
            force_reset: reset the environment before training goes on; False takes up the episodes that were running when
                the file was written, in environments whose state can be stored.
            kwargs: settings that override the stored ones.

        Raises:
            ArtifactError: missing, damaged, foreign or malicious file. PluginError: its algorithm is not installed.
        """
        if print_system_info:
            persistence.print_systems(path)
        changes = {**(custom_objects or {}), **kwargs, "device": device}
        return persistence.load(path, cls, env, changes, force_reset=force_reset)  # type: ignore[return-value]  # of class cls

    def save_replay_buffer(self, path: str | Path | IO[bytes]) -> None:
        """Write the replay buffer to a file of its own."""
        save_replay_buffer(self, path)

    @in_plain_modes
    def load_replay_buffer(self, path: str | Path | IO[bytes], truncate_last_traj: bool = True) -> None:
        """Read a replay buffer written by `save_replay_buffer`.

        Args:
            path: the file.
            truncate_last_traj: the environment is reset before training goes on, so the last trajectory is cut there;
                False keeps the environment where it is.
        """
        load_replay_buffer(self, path)
        if truncate_last_traj:
            leave_episodes(self)

    @property
    def logger(self) -> Logger:
        """Records values of the user's own beside the metrics: `logger.record("my/value", x)`."""
        return self._logger

    def set_logger(self, logger: MetricSink) -> None:
        """Send metrics to `logger` only, a `Logger` or any sink, whatever `verbose` and `tensorboard_log` say."""
        self._logger, self._logger_was_set = as_logger(logger), True
        self._logger.current_step = lambda: self.num_timesteps

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the metrics of the training that is going on, or what was recorded; a positive `iteration` is logged too."""
        dump_logs(self, iteration)
