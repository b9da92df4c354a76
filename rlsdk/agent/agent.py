"""The user-facing class `Agent`. A plugin's agent class derives from it, and gets its `spec` from the plugin's `rlsdk.toml`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, NoReturn, Self, cast

from typing_extensions import TypeVar

from rlsdk.agent import attributes, changes, learning, persistence, training_state
from rlsdk.agent.agent_file import class_of, construction_limit, set_spec
from rlsdk.agent.assembled import AssembledAgent, PolicyTransfer, in_plain_modes, modes_are_plain
from rlsdk.agent.assembly import from_arguments, reseed
from rlsdk.agent.attributes import DeviceName, own, positive
from rlsdk.agent.prediction import Session, predict
from rlsdk.callbacks import Callback, ProgressBar
from rlsdk.callbacks.callback import ForeignCallback, as_callbacks
from rlsdk.environments import ConnectedEnv, to_gymnasium
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ActionDecoder, GymSpace
from rlsdk.environments.wrapping import EnvInTraining
from rlsdk.errors import ArtifactError
from rlsdk.interfaces import Buffer, BuildContext, Parts, State
from rlsdk.interfaces.policy import TorchPolicy
from rlsdk.preprocessing import Normalizer, Preprocessing
from rlsdk.records import ActingState, Cursor
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry import load as load_plugin
from rlsdk.runtime.lazy import of_package
from rlsdk.runtime.process import Streams, derive
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.constructor import class_only
from rlsdk.settings.load import DataReference
from rlsdk.sinks import Logger, MetricSink
from rlsdk.spaces import Actions
from rlsdk.storage.journal import Journal
from rlsdk.training.run import EpisodeStatistics, Run

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=Any)


class Agent(Generic[ConfigT]):
    """An algorithm with its environment, networks and replay buffer. Make one with a plugin's class or `rlsdk.make`."""

    spec: ClassVar[AlgorithmSpec]
    policy_aliases: ClassVar[Mapping[str, str]] = {}
    """The names that `policy` may have."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        set_spec(cls)

    _assembled: AssembledAgent[ConfigT]
    context: BuildContext = own("context")
    """The spaces, number of environments, device and other facts that the parts were built from."""
    parts: Parts = own("parts")
    """The policy, the algorithm, the plan and the replay buffer."""
    policy: TorchPolicy = own("parts.policy")
    preprocessing: Preprocessing = own("preprocessing")
    normalizer: Normalizer | None = own("preprocessing.normalizer")
    """The running statistics of observations and rewards, with methods to apply and undo them; None without `normalize`."""
    masks: MaskValidator = own("masks")
    streams: Streams = own("streams")
    device_reason: str = own("device_reason")
    """The reason for the choice of the device, as text."""
    cursor: Cursor | None = own("cursor")
    """The progress of the training; None before it began."""
    acting: tuple[ActingState[object], ...] = own("acting")
    """The acting state after the last round, one per group of environments; empty before training began."""
    counts: Cursor = own("counts")
    """The steps and updates of the training so far; zeros before it began."""
    run: Run | None = own("run")
    """The running training; None if there is none."""
    decode_action: ActionDecoder = own("decode_action")
    policy_transfer: PolicyTransfer | None = own("policy_transfer")
    """The tensors that `load_policy` copied and those that it did not copy; None for an agent made in another way."""
    start_time: int = own("start_time")
    """The time of the last call of `learn`, in nanoseconds since 1970; 0 before the first."""
    seed: int = own("seed")
    """The seed of the random streams."""
    trains_with_masks: bool = own("trains_with_masks")
    """Whether actions depend on action masks: the agent needs them, or uses those of its environment or of an earlier one."""
    logger: Logger = own("logger")
    """Records values of the user in addition to the metrics: `logger.record("my/value", x)`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        # past `__setattr__`, which looks a name up among settings and members
        vars(self).update(_assembled=from_arguments(self.spec, args, kwargs, class_name=type(self).__name__))

    def __getattr__(self, name: str) -> Any:
        return attributes.read(self, vars(self).get("_assembled"), name)

    def __setattr__(self, name: str, value: object) -> None:
        attributes.write(self, vars(self).get("_assembled"), name, value)

    def __dir__(self) -> list[str]:
        return attributes.names(super().__dir__(), vars(self).get("_assembled"))

    def __repr__(self) -> str:
        return self._assembled.described() if "_assembled" in vars(self) else f"{type(self).__name__}(not made yet)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return changes.copied(self, memo)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise changes.not_pickled(self)

    @property
    def config(self) -> ConfigT:
        """All settings, as a record. Assigning another record changes the settings that differ."""
        return self._assembled.config

    @config.setter
    def config(self, value: ConfigT) -> None:
        names = attributes.setting_names(type(self.config))
        attributes.change_settings(self._assembled, {name: getattr(value, name) for name in names})

    @property
    def env(self) -> ConnectedEnv | None:
        """The training environment, None if there is none. Assigning an environment calls `set_env(env)`.

        Stepping or resetting it during training raises an error.
        """
        own = self._assembled
        return own.env if own.env is None or own.run is None else cast("ConnectedEnv", EnvInTraining(own.env))

    @env.setter
    def env(self, value: object) -> None:
        self.set_env(value)

    @property
    def env_name(self) -> str | None:
        """The id that the environment was made from; None if it was not made from an id."""
        return self._assembled.env_name

    @env_name.setter
    def env_name(self, value: str | None) -> None:
        self._assembled.env_name = value

    @property
    def device(self) -> DeviceName:
        """The device of the networks. It equals a text such as "cpu" and the `torch.device` of that name."""
        return DeviceName(self.context.device)

    @property
    def observation_space(self) -> GymSpace:
        """The observation space, as a gymnasium space."""
        return to_gymnasium(self.context.observation_space)

    @property
    def action_space(self) -> GymSpace:
        """The action space, as a gymnasium space."""
        return to_gymnasium(self.context.action_space)

    @property
    def replay_buffer(self) -> Buffer[Any, Any] | None:
        """The replay buffer; None for algorithms without one."""
        training_state.restore_replay(self._assembled)
        return self.parts.buffer

    @property
    def num_timesteps(self) -> int:
        """The environment steps since training began, or since `learn(reset_num_timesteps=True)` was last called."""
        return self._assembled.num_timesteps

    @num_timesteps.setter
    def num_timesteps(self, value: int) -> None:
        self._assembled.step_offset = self._assembled.total_steps - positive(value, "num_timesteps", least=0)

    @property
    def episode_statistics(self) -> EpisodeStatistics | None:
        """The statistics of the episodes of the running training, or of the last one; None before the first."""
        return attributes.episode_statistics(self._assembled)

    def derived_seed(self, name: str) -> int:
        """The seed of the random stream `name`, derived from the agent's seed; other streams are not affected by its use."""
        return derive(self.seed, name) % 2**32

    # --- learning ------------------------------------------------------------------------------------------------

    @in_plain_modes
    def learn(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        total_timesteps: float,
        callback: Callback | ForeignCallback | Callable[..., object] | Sequence[object] | None = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        threads: int | None = 1,
        schedule_until: float | None = None,
        exact_steps: bool = False,
        **documented: Any,
    ) -> Self:
        """Train for `total_timesteps` more environment steps, rounded up to whole rounds, and return the agent itself.

        Args:
            total_timesteps: steps counted over all environments (may be 1e6, or 0); updates if a data set is learned from.
            callback: a `Callback`, an `rlsdk_sb3.BaseCallback`, a function `f(locals, globals) -> bool`, or a list of these.
            log_interval: finished episodes between two logs if off-policy (default 4), otherwise rounds (default 1).
            tb_log_name: the name of the run in the folder `tensorboard_log`.
            reset_num_timesteps: count steps from 0 again; False continues the count and the TensorBoard curve.
            progress_bar: show progress on standard error.
            threads: the number of threads of torch and compiled code during training; None: torch's setting.
            schedule_until: run schedules, exploration and progress to this count of steps (`num_timesteps`), over as many calls
                and files as it takes; the count then continues, as with `reset_num_timesteps=False`. None: to the end of this
                call.
            exact_steps: end after exactly `total_timesteps`, with a shorter last round; see docs/resuming.md.
            documented: arguments of stable-baselines3 such as `eval_env`, with values that have no effect (see compatibility).

        Raises:
            UsageError: there is no environment, a stable-baselines3 argument is not supported, or an algorithm that plays
            whole episodes gets `exact_steps`. SettingsError: a count is negative, or not a multiple of the environments with
            `exact_steps`.
            EnvironmentFault: the environment raised an error or returned invalid values. DivergenceError: a loss became NaN.
            ResourceError: the replay buffer does not fit into memory.
        """
        attributes.check_learn_arguments(self.spec, documented, progress_bar, type(self).learn)
        name = tb_log_name or self.spec.id.upper()
        fresh = reset_num_timesteps and schedule_until is None
        call = learning.LearnCall(
            total_timesteps=total_timesteps,
            log_interval=log_interval,
            name=name,
            fresh=fresh,
            threads=threads,
            schedule_until=schedule_until,
            exact=exact_steps,
        )
        callbacks = [*as_callbacks(callback), *([ProgressBar()] if progress_bar else [])]
        learning.run_training(self._assembled, call, callbacks, self)
        return self

    @in_plain_modes
    def train(self, gradient_steps: int | None = None, batch_size: int | None = None) -> Mapping[str, float]:
        """Make `gradient_steps` updates from the replay buffer, without an environment, and return the mean metrics.

        Raises:
            UsageError: the algorithm has no replay buffer, or it is empty. SettingsError: a count is missing or not positive.
        """
        return learning.update_from_buffer(self._assembled, gradient_steps, batch_size)

    @in_plain_modes
    def pretrain(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        dataset: str | Path | DataReference,
        n_epochs: int = 10,
        learning_rate: float = 1e-4,
        adam_epsilon: float = 1e-8,
        val_interval: int | None = None,
        *,
        batch_size: int = 64,
        train_fraction: float = 0.7,
    ) -> Self:
        """Fit the policy to the actions of a data set (behavior cloning), before or between calls of `learn`; return `self`.

        The package rlsdk-datasets has the code.

        The policy defines the loss, `PolicyAbilities.imitation_loss`. With `normalize`, an agent that has not been trained yet
        computes the statistics of observations from the data.

        Args:
            n_epochs: the number of passes over the data.
            learning_rate, adam_epsilon: settings of a separate Adam optimizer; that of `learn` is not changed.
            val_interval: epochs between validations, printed with `verbose=1`; None: a tenth of `n_epochs`.
            batch_size: the number of steps per gradient step.
            train_fraction: the fraction of the episodes that is learned from; the others are for validation.

        Raises:
            ArtifactError, UnsupportedSpaceError, MaskError: the data cannot be read, or their spaces or masks do not fit.
            SettingsError: a value is out of range. UsageError: the policy has no loss. DivergenceError: the loss became NaN.
            UnknownNameError: rlsdk-datasets is not installed.
        """
        fit = of_package("rlsdk-datasets", "pretrain").pretrain
        fit(
            self,
            dataset,
            n_epochs=n_epochs,
            learning_rate=learning_rate,
            adam_epsilon=adam_epsilon,
            val_interval=val_interval,
            batch_size=batch_size,
            train_fraction=train_fraction,
        )
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
        """(actions, next state) for one observation or a batch of observations. Actions are numpy arrays; for Dict and Tuple
        spaces they are a dict or tuple of arrays, or a list of these for a batch.

        Args:
            observation: an element of the observation space, or several stacked along a new first dimension.
            state: the state that the last call returned, for recurrent policies; None begins new episodes.
            episode_start: bool per observation, True at the first observation of an episode.
            deterministic: return the mode of the distribution instead of a sample.
            action_masks: bool [A], or one per observation, True where an action is allowed; "none" allows all actions.
                Algorithms that need masks raise an error without one.

        Raises:
            ObservationError: an observation is outside the space, or the state is wrong. MaskError: a mask is missing or wrong.
        """
        # the decorator would double the time of a small network, so it runs only where it changes something
        act = predict if modes_are_plain() else in_plain_modes(predict)
        return act(self._assembled, observation, state, episode_start, deterministic, action_masks)

    def session(self, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> Session:
        """A session that acts for `n` environments and stores the state of recurrent policies between steps."""
        seed = self.derived_seed("session") if seed is None else seed
        return Session(
            self.parts.policy, self.preprocessing, n, deterministic=deterministic, seed=seed, masks=self.masks
        )

    # --- environment ---------------------------------------------------------------------------------------------

    def get_env(self) -> Any:  # the core does not import the package of its class
        """The training environment with an interface for numpy arrays, an `rlsdk_sb3.NumpyVectorEnv`; None if there is none.

        Stepping it ends the running episodes of the training. `agent.env` is the environment that algorithms step.

        Raises:
            UnknownNameError: the package rlsdk-sb3 is not installed.
        """
        return changes.numpy_environment(self._assembled)

    def set_env(self, env: object, force_reset: bool = True) -> None:
        """Replace the training environment by another one with the same spaces.

        Args:
            env: an environment in any form that the constructor accepts.
            force_reset: reset it when training continues; False continues from the last observation.

        Raises:
            UnsupportedSpaceError: the spaces differ. UsageError: the number of environments differs and the buffer is filled.
        """
        changes.switch_environment(self._assembled, env, force_reset=force_reset)
        training_state.restore_replay(self._assembled)

    def acting_copy(self, **settings: object) -> Self:
        """Return an agent with the same policy that has no environment and no training: for exporters and servers.

        `settings` replace those of the agent, such as `device="cpu"`; those that define networks must stay.

        Raises:
            UsageError: layers were replaced, so that the settings no longer describe the networks.
            SettingsError: a setting is wrong. ArtifactError: the policy does not fit the settings.
        """
        return changes.acting_copy(self, settings)

    def end_episodes(self) -> None:
        """Reset the environments when training continues, so that it begins new episodes."""
        training_state.leave_episodes(self._assembled)

    def restart_episodes(self) -> Cursor:
        """End the running episodes as truncations, begin new ones now, and return the new cursor."""
        return training_state.restart_episodes(self._assembled)

    def require_same_spaces(self, envs: object, what: str) -> None:
        """Raise UnsupportedSpaceError if the spaces of `envs` differ from the agent's; `what` names `envs` in the message."""
        changes.require_same_spaces(self._assembled, envs, what)

    def get_vec_normalize_env(self) -> Normalizer | None:
        """The agent's normalizer, or None. In rlsdk the agent normalizes, not a wrapper of its environment."""
        return self.normalizer

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the agent's random streams with `seed`, and its environments at their next reset; None: do nothing."""
        if seed is not None:
            reseed(self._assembled, seed)

    # --- parameters and files --------------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, State]:
        """Name -> state of every network and optimizer. Training changes these tensors: copy them to store them."""
        return persistence.parameters_of(self._assembled)

    def set_parameters(
        self,
        load_path_or_dict: str | Path | IO[bytes] | Mapping[str, object],
        exact_match: bool = True,
        device: str = "auto",
    ) -> None:
        """Replace parameters in place, from an agent file or a mapping in the form that `get_parameters` returns.

        Args:
            load_path_or_dict: the file or mapping. Both know the order of Dict keys; a dict of items of the mapping does not.
            exact_match: require every parameter; False replaces the given parameters and does not change the others.
            device: has no effect.

        Raises:
            ArtifactError: names, shapes or entries of Dict spaces do not fit; then no parameter is changed.
        """
        persistence.set_parameters(self._assembled, load_path_or_dict, exact_match=exact_match)

    def save(
        self, path: str | Path | IO[bytes], exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None:
        """Write the agent to a file (`.rlsdk` is appended to names without it) or a binary file object.

        Sections are `policy` (always), `training` (unless excluded) and `replay` (only if included). Names of attributes are
        accepted in `exclude` too, but settings are always stored, because an agent cannot be loaded without them.

        Returns the path of the file; None for a file object. Raises ArtifactError if the file cannot be written; an existing
        file is unchanged.
        """
        return persistence.save_as_asked(
            self._assembled, path, exclude, include, dir(self) if exclude or include else ()
        )

    def training_state(self, exclude: Iterable[str] = (), include: Iterable[str] = ()) -> dict[str, State]:
        """The content of a file of the agent: section -> state, as for `save`. Training changes its tensors: copy them."""
        return training_state.sections_of(self._assembled, exclude=frozenset(exclude), include=frozenset(include))

    def save_checkpoint(self, path: Path, *, replay: bool, journal: Journal | None = None) -> bool:
        """Write the agent to a file, with `replay` also its buffers; a `journal` stores the rows of the replay buffer. Return
        whether the file contains the running episodes."""
        return persistence.save_checkpoint(self._assembled, path, replay=replay, journal=journal)

    @class_only
    def load(  # the signature of stable-baselines3
        cls,  # noqa: N805
        path: str | Path | IO[bytes],
        env: object = None,
        device: str = "auto",
        custom_objects: Mapping[str, object] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: object,
    ) -> Self:
        """Make a new agent from a file. Without `env` it can predict; `learn` needs one unless it learns from a data set.

        Args:
            path: a file name (`.rlsdk` may be left out), a Path or a binary file object.
            env: the environment to continue training in; it must have the same spaces.
            custom_objects: name of a setting (dotted) -> value, for classes and functions, which files do not store.
            print_system_info: print the package versions that the file was saved with, and the installed ones.
            force_reset: reset the environment before training continues; False continues the episodes that were running, in
                environments whose state can be stored.
            device, kwargs: settings that override the stored ones.

        Raises:
            ArtifactError: the file is missing, damaged, malicious or not an agent. PluginError: its plugin is not installed.
        """
        device = persistence.chosen_device(device, env)
        settings = {**attributes.replaced_settings(custom_objects), **kwargs, "device": device}
        # before the file is read, which another version may refuse
        if print_system_info:
            persistence.print_systems(path)
        base = cast("type[Self]", Agent)
        kind, assembled = persistence.load(path, cls, base, settings, replay=env is not None, force_reset=force_reset)
        agent = kind.__new__(kind)
        vars(agent).update(_assembled=assembled)
        # after the restoring, as the number of environments may differ from the file's
        if env is not None:
            agent.set_env(env)
        return agent

    @class_only
    def load_policy(cls, path: str | Path | IO[bytes], env: object = None, **settings: object) -> Self:  # noqa: N805
        """Make a new agent that begins with the policy in a file of any algorithm. The order of Dict keys and the settings
        `policy`, `policy_kwargs`, `normalize`, `frame_stack` are the file's, unless `settings` have them. Tensors of the same
        name and shape are copied; a warning lists the others (`policy_transfer`). Without `env` the agent needs `set_env`.

        Raises:
            ArtifactError: as `load`, no tensor fits, or `env` lacks entries of the file. PluginError: its plugin is missing.
            SettingsError: the class lacks the file's policy, and `settings` do not choose another.
        """
        stored = persistence.StoredPolicy.read(path)
        merged, agent = stored.settings_for(cls.spec, {**settings, "env": env}), cls.__new__(cls)
        with stored.fitting(cls.spec, settings, env):
            agent._assembled = from_arguments(cls.spec, (), merged, class_name=cls.__name__, order=stored.spaces)
        transfer = stored.into(agent._assembled)
        if transfer.partial:
            warnings.warn(f"load_policy: {transfer}", stacklevel=2)
        return agent

    def save_replay_buffer(self, path: str | Path | IO[bytes]) -> None:
        """Write the replay buffer to a separate file."""
        training_state.save_replay_buffer(self._assembled, path)

    @in_plain_modes
    def load_replay_buffer(self, path: str | Path | IO[bytes], truncate_last_traj: bool = True) -> None:
        """Read a replay buffer that `save_replay_buffer` wrote. A refused file leaves the present one unchanged.

        `truncate_last_traj`: reset the environment before training continues, so that the last trajectory ends; False does not
        reset it.
        """
        training_state.load_replay_buffer(self._assembled, path)
        if truncate_last_traj:
            self.end_episodes()

    def set_logger(self, logger: MetricSink) -> None:
        """Write metrics only to `logger`, a `Logger` or any sink; `verbose` and `tensorboard_log` are then ignored."""
        own = self._assembled
        own.logger, own.logger_was_set = learning.as_logger(logger), True
        # values of the user are logged at the agent's steps
        own.logger.current_step = lambda: own.num_timesteps

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the metrics of the running training, or else the recorded values; a positive `iteration` is logged too."""
        learning.dump_logs(self._assembled, iteration)


def agent_class(spec: AlgorithmSpec) -> type[Agent]:
    """The agent class that the plugin defines, or a generated one if it defines none."""
    return class_of(spec, Agent)


def make(algorithm: str, *, env: object, policy: str | None = None, **settings: object) -> Agent:
    """Make an agent from the id of its algorithm: `rlsdk.make("tqc", env="Pendulum-v1", learning_rate=1e-3)`.

    Raises:
        PluginError: the algorithm is unknown or its plugin is broken. SettingsError, EnvironmentFault: as for the agent class.
    """
    spec = load_plugin(algorithm)
    return agent_class(spec)(policy or spec.policies[0], env, **settings)


def from_parameters(
    algorithm: str,
    parameters: Mapping[str, State],
    *,
    env: object,
    policy: str | None = None,
    **settings: object,
) -> Agent:
    """Make an agent with parameters from elsewhere, such as the file of another library.

    Args:
        algorithm: id of the algorithm.
        parameters: name -> state of each network, in the form of `Agent.get_parameters`. Every weight of `policy` is needed;
            of the rest, such as optimizers, what is absent stays as it is in a new agent.
        env, policy, settings: as for `make`. They may come from the file too: networks far larger than the parameters are
            refused before there is memory for them.

    Raises:
        ArtifactError: a weight of the policy is missing, parameters do not fit, or the networks are far larger than they are.
        PluginError, SettingsError, EnvironmentFault: as for `make`.
    """
    with construction_limit(parameters):
        agent = make(algorithm, env=env, policy=policy, **settings)
    # the policy inside the normalization
    inner = getattr(agent.policy, "inner", agent.policy)
    if missing := sorted({name for name, _ in inner.named_parameters()} - set(parameters.get("policy", {}))):
        raise ArtifactError(f"{', '.join(missing)} missing")
    agent.set_parameters(parameters, exact_match=False)
    return agent


def load(path: str | Path | IO[bytes], env: object = None, device: str = "auto", **kwargs: Any) -> Agent:
    """Load an agent of any algorithm from a file. The arguments are those of `Agent.load`."""
    return Agent.load(path, env, device, **kwargs)


@contextmanager
def substituted(agent: Agent, parts: Parts, env: ConnectedEnv | None) -> Iterator[None]:
    """Replace the parts and the environment of `agent` inside the block, and restore them afterwards."""
    own, before = agent._assembled, (agent.parts, agent.env)
    own.parts, own.env = parts, env
    try:
        yield
    finally:
        # new settings may have changed it
        plan = own.parts.plan
        own.parts, own.env = before if plan is parts.plan else (replace(before[0], plan=plan), before[1])


def part(path: str, doc: str) -> Any:
    """A read-only property of an agent class that returns the attribute `path` (with dots) of the agent's `Parts`.

    `critic_target: ContinuousCritics = part("algorithm.trained.target.network", "The target network.")`
    """
    return own(f"parts.{path}", doc)
