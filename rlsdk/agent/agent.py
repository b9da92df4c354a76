"""Agent: the user-facing class over the parts. A plugin's own class binds its spec and adds nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, NoReturn, Self, cast

from typing_extensions import TypeVar

from rlsdk.agent import attributes, parameters, persistence
from rlsdk.agent.arguments import check_learn_arguments, positive, replaced_settings
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import from_arguments, reseed
from rlsdk.agent.attributes import DeviceName, own, setting_names
from rlsdk.agent.classes import bind, class_for
from rlsdk.agent.copying import copied, not_pickled
from rlsdk.agent.learning import Request, callbacks_of, run_training
from rlsdk.agent.loggers import dump_logs, set_logger
from rlsdk.agent.offline_updates import update_from_memory
from rlsdk.agent.policy_transfer import StoredPolicy, warn_of_rest, without_environment
from rlsdk.agent.prediction import predict
from rlsdk.agent.pretraining import Pretraining, pretrain
from rlsdk.agent.reconfiguration import change_settings
from rlsdk.agent.resumption import leave_episodes, restart_episodes
from rlsdk.agent.session import Session
from rlsdk.agent.stored_replay import load_replay_buffer, restore_replay, save_replay_buffer
from rlsdk.agent.switch_environment import env_for_users, numpy_environment, require_same_spaces, switch_environment
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.agent.training_state import TrainingState, training_state
from rlsdk.agent.transferred import PolicyTransfer
from rlsdk.callbacks import BaseCallback, Callback
from rlsdk.environments import ConnectedEnv, NumpyVectorEnv, to_gymnasium
from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.space_conversion import GymSpace
from rlsdk.interfaces import Buffer, BuildContext, Parts, State, TorchPolicy
from rlsdk.preprocessing import Normalizer, Preprocessing
from rlsdk.records import ActingState, Cursor
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.seeding import Streams, derive
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.constructor import class_only
from rlsdk.settings.dataset import Dataset
from rlsdk.sinks import Logger, MetricSink
from rlsdk.spaces import Actions
from rlsdk.storage.journal import Journal
from rlsdk.training.run import Run

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=Any)


class Agent(Generic[ConfigT]):
    """An algorithm with its environment, networks and memory. Make one with a plugin's class or `rlsdk.make`."""

    spec: ClassVar[AlgorithmSpec]
    policy_aliases: ClassVar[Mapping[str, str]] = {}
    """The names that `policy` may have."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        bind(cls)

    _assembled: AssembledAgent[ConfigT]
    context: BuildContext = own()
    """What was known of the environment and the machine when the parts were built."""
    parts: Parts = own()
    """The policy, the algorithm, the plan and the memory that train."""
    policy: TorchPolicy = own("parts.policy")
    preprocessing: Preprocessing = own()
    normalizer: Normalizer | None = own("preprocessing.normalizer")
    """The running statistics of observations and rewards, with helpers to apply and to undo them; None without."""
    masks: MaskValidator = own()
    streams: Streams = own()
    device_reason: str = own()
    """Why the agent is on its device."""
    cursor: Cursor | None = own()
    """How far training is; None before it began."""
    acting: tuple[ActingState[object], ...] = own()
    """Where acting stood after the last round, one per group of environments; empty before training began."""
    run: Run | None = own()
    """The current training."""
    decode_action: ActionDecoder = own()
    policy_transfer: PolicyTransfer | None = own()
    """What `load_policy` took over, and what not; None for an agent made otherwise."""
    start_time: int = own()
    """When `learn` was last called, nanoseconds since 1970; 0 before."""
    seed: int = own()
    """What the random streams started from."""
    logger: Logger = own()
    """Records values of the user's own beside the metrics: `logger.record("my/value", x)`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._assembled = from_arguments(self.spec, args, kwargs, class_name=type(self).__name__)

    def __getattr__(self, name: str) -> Any:
        return attributes.read(type(self), vars(self).get("_assembled"), name)

    def __setattr__(self, name: str, value: object) -> None:
        attributes.write(self, vars(self).get("_assembled"), name, value)

    def __dir__(self) -> list[str]:
        return attributes.names(super().__dir__(), vars(self).get("_assembled"))

    def __repr__(self) -> str:
        return self._assembled.described() if "_assembled" in vars(self) else f"{type(self).__name__}(not made yet)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copied(self, memo)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_pickled(self)

    @property
    def config(self) -> ConfigT:
        """Every setting, as a record; assigning one changes the settings that differ."""
        return self._assembled.config

    @config.setter
    def config(self, value: ConfigT) -> None:
        change_settings(self._assembled, {name: getattr(value, name) for name in setting_names(type(self.config))})

    @property
    def env(self) -> ConnectedEnv | None:
        """The training environment, None if there is none; assigning one is `set_env(env)`."""
        return env_for_users(self._assembled)

    @env.setter
    def env(self, value: object) -> None:
        self.set_env(value)

    @property
    def env_name(self) -> str | None:
        """The id the environment was made from; None where it was no id."""
        return self._assembled.env_name

    @env_name.setter
    def env_name(self, value: str | None) -> None:
        self._assembled.env_name = value

    @property
    def device(self) -> DeviceName:
        """Where networks are; equal to a text such as "cpu" and to the `torch.device` of that name."""
        return DeviceName(self.context.device)

    @property
    def observation_space(self) -> GymSpace:
        """The gymnasium space of observations."""
        return to_gymnasium(self.context.observation_space)

    @property
    def action_space(self) -> GymSpace:
        """The gymnasium space of actions."""
        return to_gymnasium(self.context.action_space)

    @property
    def replay_buffer(self) -> Buffer[Any, Any] | None:
        """The replay buffer, None for algorithms without one."""
        restore_replay(self._assembled)
        return self.parts.buffer

    @property
    def num_timesteps(self) -> int:
        """Environment steps since training began, or since `learn(reset_num_timesteps=True)` was last called."""
        return self._assembled.num_timesteps

    @num_timesteps.setter
    def num_timesteps(self, value: int) -> None:
        self._assembled.step_offset = self._assembled.total_steps - positive(value, "num_timesteps", least=0)

    def derived_seed(self, name: str) -> int:
        """The seed of the agent's stream `name`, for what must not disturb the others."""
        return derive(self.seed, name) % 2**32

    # --- learning ------------------------------------------------------------------------------------------------

    @in_plain_modes
    def learn(  # noqa: PLR0913  # the documented signature
        self,
        total_timesteps: float,
        callback: Callback | BaseCallback | Callable[..., object] | Sequence[object] | None = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        threads: int | None = 1,
        **documented: Any,
    ) -> Self:
        """Train for `total_timesteps` more environment steps; returns the agent itself.

        Args:
            total_timesteps: environment steps over all environments (1e6 too), or 0; updates where a data set is learnt from.
            callback: a `Callback` or `BaseCallback`, a function `f(locals, globals) -> bool`, or a list of these.
            log_interval: finished episodes between two logs (default 4); rounds for the other families (default 1).
            tb_log_name: name of the run under `tensorboard_log`.
            reset_num_timesteps: count from 0 again; False continues the count and the curve.
            progress_bar: show progress on standard error.
            threads: torch threads while training; None leaves torch's setting alone.
            documented: `eval_env` and others of the documented library, where they are without effect (see compatibility).

        Raises:
            UsageError: no environment, or a documented argument without counterpart. SettingsError: a count that is
            negative.
            EnvironmentFault: the environment misbehaved. DivergenceError: a loss became NaN. ResourceError: the replay
            buffer does not fit.
        """
        check_learn_arguments(self.spec, documented, progress_bar)
        name = tb_log_name or self.spec.id.upper()
        request = Request(total_timesteps, log_interval, name, reset_num_timesteps, threads)
        run_training(self._assembled, request, callbacks_of(callback, progress_bar), self)
        return self

    @in_plain_modes
    def train(self, gradient_steps: int | None = None, batch_size: int | None = None) -> Mapping[str, float]:
        """Update `gradient_steps` times from the replay buffer, without any environment; returns the mean metrics.

        Raises:
            UsageError: the algorithm has no replay buffer, or it is empty. SettingsError: a count that is not positive.
        """
        return update_from_memory(self._assembled, gradient_steps, batch_size)

    @in_plain_modes
    def pretrain(  # noqa: PLR0913  # the documented signature
        self,
        dataset: str | Path | Dataset,
        n_epochs: int = 10,
        learning_rate: float = 1e-4,
        adam_epsilon: float = 1e-8,
        val_interval: int | None = None,
        *,
        batch_size: int = 64,
        train_fraction: float = 0.7,
    ) -> Self:
        """Fit the policy to the actions of a data set (behaviour cloning), before `learn` or between two; returns the agent.

        The loss is the policy's own, see `rlsdk.interfaces.Imitates`. With `normalize`, an agent that has not learnt yet takes
        the statistics of the observations from the data.

        Args:
            n_epochs: passes over the steps.
            learning_rate, adam_epsilon: of an Adam of its own; the optimiser of `learn` is left alone.
            val_interval: epochs between validations, printed with `verbose=1`; None: a tenth of `n_epochs`.
            batch_size: steps per gradient step.
            train_fraction: share of the episodes that is learnt from; the others validate.

        Raises:
            ArtifactError, UnsupportedSpaceError, MaskError: the data cannot be read, have other spaces, or no fitting masks.
            SettingsError: a value out of range. UsageError: the policy has no such loss. DivergenceError: the loss became NaN.
        """
        request = Pretraining(n_epochs, learning_rate, adam_epsilon, val_interval, batch_size, train_fraction)
        pretrain(self._assembled, dataset, request)
        return self

    # --- acting --------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
        action_masks: object = None,
    ) -> tuple[Actions, object]:
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
            ObservationError: a shape, key or value outside the space; a wrong state. MaskError: a mask missing or unusable.
        """
        return predict(self._assembled, observation, state, episode_start, deterministic, action_masks)

    def session(self, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> Session:
        """A session that acts for `n` environments and remembers for the caller what the policy needs remembered."""
        seed = self.derived_seed("session") if seed is None else seed
        return Session(
            self.parts.policy, self.preprocessing, n, deterministic=deterministic, seed=seed, masks=self.masks
        )

    # --- environment ---------------------------------------------------------------------------------------------

    def get_env(self) -> NumpyVectorEnv | None:
        """The training environment, stepped with numpy arrays, which ends the episodes that training was in the middle of; None
        if there is none. `agent.env` is what algorithms step."""
        return numpy_environment(self._assembled)

    def set_env(self, env: object, force_reset: bool = True) -> None:
        """Train on another environment from now on, with the same spaces.

        Args:
            env: anything the constructor takes.
            force_reset: reset it when training continues; False continues from the last observation.

        Raises:
            UnsupportedSpaceError: other spaces. UsageError: another number of environments with a filled buffer.
        """
        switch_environment(self._assembled, env, force_reset=force_reset)
        restore_replay(self._assembled)

    def end_episodes(self) -> None:
        """Continue training with new episodes, as after its environments were used for something else."""
        leave_episodes(self._assembled)

    def restart_episodes(self) -> Cursor:
        """End the running episodes as truncations and begin new ones now; returns the new cursor."""
        return restart_episodes(self._assembled)

    def require_same_spaces(self, envs: object, what: str) -> None:
        """Raises UnsupportedSpaceError when `envs` has other spaces than the agent."""
        require_same_spaces(self._assembled, envs, what)

    def get_vec_normalize_env(self) -> Normalizer | None:
        """The normaliser: it belongs to the agent, not to a wrapper of its environment."""
        return self.normalizer

    def set_random_seed(self, seed: int | None = None) -> None:
        """Start every random stream of the agent, and its environments at their next reset, from `seed`; None: do nothing."""
        if seed is not None:
            reseed(self._assembled, seed)

    # --- parameters and files --------------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, State]:
        """Name -> state of every network and optimiser; tensors are the live ones, copy what you keep."""
        return parameters.parameters_of(self._assembled)

    def set_parameters(
        self,
        load_path_or_dict: str | Path | IO[bytes] | Mapping[str, object],
        exact_match: bool = True,
        device: str = "auto",
    ) -> None:
        """Replace parameters in place, from an agent file or a mapping as `get_parameters` returns it.

        Args:
            load_path_or_dict: the source.
            exact_match: every module must be given; False takes what is there and keeps the rest.
            device: without effect.

        Raises:
            ArtifactError: names or shapes that do not fit; the agent is unchanged then.
        """
        parameters.set_parameters(self._assembled, load_path_or_dict, exact_match=exact_match)

    def save(
        self, path: str | Path | IO[bytes], exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None:
        """Write the agent to a file (`.rlsdk` is appended to names without it) or a binary file object.

        Sections are `policy` (always), `training` (unless excluded) and `replay` (only if included). Names of attributes may be
        excluded too: settings are stored all the same, for a file without them is not an agent.

        Returns where the file is; None for a file object. Raises ArtifactError: the place cannot be written; what was there is
        untouched.
        """
        return persistence.save_as_asked(self._assembled, path, exclude, include, dir(self))

    def training_state(self, exclude: Iterable[str] = (), include: Iterable[str] = ()) -> TrainingState:
        """All that a file of the agent holds, as a record with the live tensors; sections as for `save`."""
        return training_state(self._assembled, exclude=frozenset(exclude), include=frozenset(include))

    def save_checkpoint(self, path: Path, *, replay: bool, journal: Journal | None = None) -> bool:
        """Write the agent, with `replay` its memories too, the rows of the replay buffer into `journal`; returns whether the
        file holds the running episodes."""
        return persistence.save_checkpoint(self._assembled, path, replay=replay, journal=journal)

    @class_only
    def load(  # the documented signature
        cls,  # noqa: N805
        path: str | Path | IO[bytes],
        env: object = None,
        device: str = "auto",
        custom_objects: Mapping[str, object] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: object,
    ) -> Self:
        """A new agent from a file; without `env` it can predict.

        Args:
            path: file name (`.rlsdk` may be left out), Path or binary file object.
            env: environment to continue learning in; must have the same spaces.
            custom_objects: setting name (dotted) -> value, for classes and functions that files do not hold.
            print_system_info: print the versions the file was made with, and those here.
            force_reset: reset the environment before training continues; False continues the episodes that were running, in
                environments whose state can be stored.
            device, kwargs: settings that override the stored ones.

        Raises:
            ArtifactError: missing, damaged, foreign or malicious file. PluginError: its algorithm is not installed.
        """
        changes = {**replaced_settings(custom_objects), **kwargs, "device": device}
        file = persistence.read(path, replay=env is not None, print_systems=print_system_info)
        kind = class_for(file.document, cls, cast("type[Self]", Agent))
        agent = kind.__new__(kind)
        agent._assembled = persistence.load(file, kind.spec, changes, class_name=kind.__name__, force_reset=force_reset)
        if env is not None:
            agent.set_env(env)
        return agent

    @class_only
    def load_policy(cls, path: str | Path | IO[bytes], env: object = None, **settings: object) -> Self:  # noqa: N805
        """A new agent that begins with the policy in a file of any algorithm: its name, networks, normalisation and stacked
        frames come from there, unless given in `settings`. Tensors of the same name and shape are copied, a warning lists the
        others (`policy_transfer`). Without `env` the agent has the file's spaces, and learns after `set_env`.

        Raises:
            ArtifactError: as `load`, or no tensor fits. PluginError: the algorithm of the file is not installed.
            SettingsError: the class lacks the file's policy, and `settings` name no other.
        """
        stored = StoredPolicy.read(path)
        merged, agent = stored.settings_for(cls.spec, settings), cls.__new__(cls)
        with stored.fitting(cls.spec, settings):
            if env is None:
                agent._assembled = without_environment(stored, cls.spec, merged, cls.__name__)
            else:
                agent._assembled = from_arguments(cls.spec, (), {**merged, "env": env}, class_name=cls.__name__)
        warn_of_rest(stored.into(agent._assembled))
        return agent

    def save_replay_buffer(self, path: str | Path | IO[bytes]) -> None:
        """Write the replay buffer to a file of its own."""
        save_replay_buffer(self._assembled, path)

    @in_plain_modes
    def load_replay_buffer(self, path: str | Path | IO[bytes], truncate_last_traj: bool = True) -> None:
        """Read a replay buffer written by `save_replay_buffer`.

        `truncate_last_traj`: the environment is reset before training continues, so the last trajectory is cut there; False
        leaves the environment where it is.
        """
        load_replay_buffer(self._assembled, path)
        if truncate_last_traj:
            self.end_episodes()

    def set_logger(self, logger: MetricSink) -> None:
        """Send metrics to `logger` only, a `Logger` or any sink; `verbose` and `tensorboard_log` are ignored."""
        set_logger(self._assembled, logger)

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the metrics of the current training, or what was recorded; a positive `iteration` is logged too."""
        dump_logs(self._assembled, iteration)
