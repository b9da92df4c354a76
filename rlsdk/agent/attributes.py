"""Reading and assigning attributes of an agent. Settings are attributes, `model.gamma`; unknown names raise an error.

A setting is returned in the form that stable-baselines3 documents. Assigning one calls `change_settings`. Other attributes of
stable-baselines3 are computed (`DERIVED`), or raise an error that names a replacement (`ELSEWHERE`).
"""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np
import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import SettingsError, UnknownAttributeError, UsageError, shown, suggest
from rlsdk.interfaces import AlgorithmAbilities, BufferAbilities, PlanAbilities
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Episode
from rlsdk.settings import evolve
from rlsdk.settings.actor_critic import NetworkConfig
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.schedules import Constant, TrainFrequency
from rlsdk.training.collector import joined
from rlsdk.training.run_record import EpisodeStatistics
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.registry import AlgorithmSpec


class ConstantValue(float):
    """A number that can also be called as a schedule: `model.clip_range` and `model.clip_range(1.0)` are both 0.2."""

    def __call__(self, progress_remaining: float) -> float:
        return float(self)


class DeviceName(str):
    """The name of a device, such as "cuda:0". It equals the `torch.device` of that name and has its `type` and `index`."""

    __slots__ = ()

    @property
    def type(self) -> str:
        return torch.device(str(self)).type

    @property
    def index(self) -> int | None:  # type: ignore[override]  # overrides `str.index`
        return torch.device(str(self)).index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str | torch.device):
            return NotImplemented
        mine, theirs = torch.device(str(self)), str(other)
        return str(mine) == theirs or (mine.type == "cuda" and {str(mine), theirs} == {"cuda", "cuda:0"})

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


def own(path: str, doc: str | None = None) -> Any:
    """A read-only property of `Agent`, for a class body: `name: Type = own(path)`; type checkers see a `Type`.

    Args:
        path: the attribute of `AssembledAgent`, with dots if nested.
    """
    names = ("_assembled", *path.split("."))

    def get(agent: object) -> object:
        value = agent
        for name in names:  # torch.compile does not support attrgetter
            value = getattr(value, name)
        return value

    return property(get, doc=doc)


def read(kind: type, agent: AssembledAgent | None, name: str) -> Any:
    """The value of an attribute that is not a member of the class `kind`: a setting, or an entry of `DERIVED`.

    `agent` is None until it is assembled.

    Raises:
        UnknownAttributeError: the name is neither; the message names a replacement or the closest name.
    """
    if agent is not None and name in setting_names(type(agent.config)):
        return documented_form(getattr(agent.config, name))
    if agent is not None and name in DERIVED:
        return DERIVED[name](agent)
    if name in ELSEWHERE:
        raise UnknownAttributeError(f"{kind.__name__} has no attribute {name!r}; {ELSEWHERE[name]}")
    if (
        agent is not None
        and (settings := getattr(agent.config, "policy_kwargs", None)) is not None
        and hasattr(settings, name)
    ):
        raise UnknownAttributeError(
            f"{kind.__name__} has no attribute {name!r}; it is a setting of the networks: model.config.policy_kwargs.{name}"
        )
    hint = "" if agent is None or name.startswith("_") else f"; {_closest(kind, agent, name)}"
    raise UnknownAttributeError(f"{kind.__name__} has no attribute or setting {name!r}{hint}")


def write(user_facing: object, agent: AssembledAgent | None, name: str, value: object) -> None:
    """Assign an attribute of a `user_facing` agent. A changed setting takes effect immediately if the algorithm supports it.

    Raises:
        UsageError: the setting or attribute cannot change after the agent was made. SettingsError: the value is not accepted.
        UnknownAttributeError: there is no such setting or attribute.
    """
    kind = type(user_facing)
    if name in vars(user_facing):
        object.__setattr__(user_facing, name, value)
        return
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, property):
        if member.fset is None:
            instead = ELSEWHERE.get(name, "it follows from how the agent was made and trained")
            raise UsageError(f"{kind.__name__}.{name} cannot be assigned; {instead}")
        object.__setattr__(user_facing, name, value)
    elif agent is not None and name in setting_names(type(agent.config)):
        change_settings(agent, {name: value})
    elif member is not None or name in _declared(kind):
        object.__setattr__(user_facing, name, value)
    elif name in DERIVED or name in ELSEWHERE:
        raise UsageError(f"{kind.__name__}.{name} cannot be assigned; {ELSEWHERE.get(name, 'the agent computes it')}")
    elif name.startswith("_"):
        object.__setattr__(user_facing, name, value)
    else:
        raise UnknownAttributeError(
            f"{kind.__name__} has no attribute or setting {name!r}; {_closest(kind, agent, name)}; to store your own value,"
            " begin its name with an underscore, or declare it in the class body of a subclass"
        )


def names(members: Iterable[str], agent: AssembledAgent | None) -> list[str]:
    """The names that `dir` lists: members, settings and derived attributes."""
    settings = frozenset[str]() if agent is None else setting_names(type(agent.config))
    return sorted({*members, *settings, *DERIVED})


def setting_names(kind: type[object]) -> frozenset[str]:
    """The names of the settings of a config class."""
    return frozenset(field.name for field in attrs.fields(cast("Any", kind)))


def _declared(kind: type[object]) -> frozenset[str]:
    """The names of attributes that the class or its bases declare with a type."""
    return frozenset(name for base in kind.__mro__ for name in inspect.get_annotations(base))


def _closest(kind: type, agent: AssembledAgent | None, name: str) -> str:
    hint = suggest(name, (known for known in names(dir(kind), agent) if not known.startswith("_")))
    if hint.startswith("did you") or agent is None:
        return hint
    return f"its settings are {', '.join(sorted(setting_names(type(agent.config))))}"


def documented_form(value: object) -> object:
    """A setting in the form that stable-baselines3 documents: a number for a constant schedule, an int or a pair for a training
    frequency, and for network settings a dict of those that differ from the defaults."""
    if isinstance(value, Constant):
        return ConstantValue(value.value)
    if isinstance(value, TrainFrequency):
        return value.count if value.unit == "step" else (value.count, value.unit)
    if isinstance(value, NetworkConfig):
        return _given(value)
    return value


def _given(value: NetworkConfig) -> dict[str, object]:
    default = type(value)()
    fields = [field.name for field in attrs.fields(cast("Any", type(value)))]
    changed = {name: getattr(value, name) for name in fields if getattr(value, name) != getattr(default, name)}
    return {name: _widths(item) if name == "net_arch" else item for name, item in changed.items()}


def _widths(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return list(value[""]) if set(value) == {""} else {name: list(widths) for name, widths in value.items()}


def _episodes(agent: AssembledAgent) -> EpisodeStatistics | None:
    """The episode statistics of the running training, or of the last one; None before the first."""
    if agent.run is not None:
        return agent.run.episode_statistics
    if agent.stored_log is None:
        return None
    episode_statistics = EpisodeStatistics(agent.config.stats_window_size)
    episode_statistics.load_state_dict(agent.stored_log)
    return episode_statistics


def _last_episodes(agent: AssembledAgent) -> list[Episode]:
    """The last `stats_window_size` episodes. If a callback has `on_step`, they include those of the current round."""
    episode_statistics = _episodes(agent)
    window = () if episode_statistics is None else episode_statistics.window
    return [*window, *(() if agent.run is None else agent.run.episodes_in_round)][-agent.config.stats_window_size :]


def _episode_infos(agent: AssembledAgent) -> deque[dict[str, float]]:
    """{"r": return, "l": length} for each of the last episodes."""
    last, size = _last_episodes(agent), agent.config.stats_window_size
    return deque(({"r": episode.episode_return, "l": episode.length} for episode in last), maxlen=size)


def _successes(agent: AssembledAgent) -> deque[bool]:
    last, size = _last_episodes(agent), agent.config.stats_window_size
    return deque((episode.success for episode in last if episode.success is not None), maxlen=size)


def _finished_episodes(agent: AssembledAgent) -> int:
    episode_statistics, run = _episodes(agent), agent.run
    finished = 0 if episode_statistics is None else episode_statistics.finished_episodes
    return finished + (0 if run is None else len(run.episodes_in_round))


def _last_observation(agent: AssembledAgent) -> object:
    """The observation to act on next, numpy [B, ..]; None before training."""
    if not agent.acting:
        return None
    seen = joined([state.observation for state in agent.acting])
    return map_tensors(lambda leaf: leaf.cpu().numpy().copy(), seen.features)


DERIVED: dict[str, Callable[[AssembledAgent], object]] = {
    "n_envs": lambda agent: agent.context.num_envs,
    "lr_schedule": lambda agent: agent.config.learning_rate,
    "policy_class": lambda agent: type(agent.parts.policy),
    "ep_info_buffer": _episode_infos,
    "ep_success_buffer": _successes,
    "_n_updates": lambda agent: agent.counts.updates,
    "_episode_num": _finished_episodes,
    "_current_progress_remaining": lambda agent: 1.0 if agent.run is None else agent.run.progress_remaining,
    "_last_obs": _last_observation,
}
"""Attribute of stable-baselines3 -> the function that computes it when it is read."""
ELSEWHERE = {
    "rollout_buffer": "rollouts are records: an algorithm's `update` gets one, and see rlsdk.training.collector",
    "collect_rollouts": "collecting is rlsdk.training.collector.collect, which needs an environment and a policy",
    "policy": "load weights with set_parameters, or make the agent with another policy",
    "seed": "call set_random_seed(seed)",
    "device": "load the agent on another device: load(path, device=...)",
    "replay_buffer": "read one with load_replay_buffer(path)",
    "logger": "call set_logger(logger)",
    "normalizer": "normalisation is chosen when the agent is made",
    "n_envs": "give another environment with set_env(env)",
    "lr_schedule": "assign learning_rate",
    "policy_class": "networks are chosen when the agent is made",
    "observation_space": "it is the environment's",
    "delta_std_schedule": "delta_std is the schedule",
    "ent_coef_optimizer": "model.get_parameters()['entropy']['optimizer'] is its state",
    "ent_coef_tensor": "ent_coef is the setting, the metric train/ent_coef what is learnt",
    "exploration_schedule": "exploration_initial_eps, exploration_final_eps and exploration_fraction are the schedule,"
    " exploration_rate its value",
    "log_ent_coef": "model.get_parameters()['entropy']['log_alpha'] is the logarithm where ent_coef is learnt",
    "n_params": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) has one entry for each",
    "weights": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "_last_obs": "end_episodes() begins new episodes",
    "_last_episode_starts": "end_episodes() begins new episodes",
    "_last_lstm_states": "end_episodes() begins new episodes; predict gives and takes states, a session keeps them",
    "_logger": "logger is it, set_logger(logger) replaces it",
    "_setup_model": "an agent is complete when it is made",
    "_total_timesteps": "callbacks find it in self.locals['total_timesteps']",
    "_vec_normalize_env": "get_vec_normalize_env() is it",
    "action_space": "it is the environment's",
    "action_probability": "model.policy.get_distribution(observation) is the distribution of actions",
    "get_policy": "model.policy is it",
    "load_parameters": "set_parameters(path_or_parameters) loads them",
    "parameters": "model.policy.parameters() are those of the policy, get_parameters() all",
    "state_dict": "get_parameters() has all tensors, save(path) writes them",
    "load_state_dict": "set_parameters(parameters) loads them",
    "value": "model.policy.predict_values(observation) predicts values",
    **dict.fromkeys(
        ("act", "choose_action", "compute_single_action", "get_action", "sample_action", "select_action", "step"),
        "predict(observation) acts",
    ),
    **dict.fromkeys(("evaluate", "test"), "rlsdk.evaluation.evaluate_policy(model) evaluates"),
}
"""Attribute that is absent or cannot be assigned -> what to use instead."""


EVALUATION = "evaluate with a callback: learn(..., callback=rlsdk.callbacks.EvalCallback(env, eval_freq=steps))"
OF_CONSTRUCTORS: dict[str, tuple[tuple[object, ...], str, tuple[str, ...]]] = {
    "_init_setup_model": ((True, False), "", ("on-policy", "off-policy", "population")),
    "create_eval_env": ((False, None), EVALUATION, ("on-policy", "off-policy")),
    "rollout_buffer_class": (
        (None,),
        "rollouts are records, rlsdk.records.Rollout, which every update gets",
        ("on-policy",),
    ),
    "rollout_buffer_kwargs": (
        (None, {}),
        "rollouts are records, rlsdk.records.Rollout, without settings",
        ("on-policy",),
    ),
}
"""Argument of constructors -> (accepted values, replacement for other values, families of algorithms that have it)."""
OF_LEARN: dict[str, tuple[tuple[object, ...], str]] = {
    "eval_env": ((None,), EVALUATION),
    "eval_freq": ((None, -1), EVALUATION),
    "n_eval_episodes": ((None, 5), EVALUATION),
    "eval_log_path": ((None,), EVALUATION),
}
"""Argument of `learn` -> (accepted values, replacement for other values)."""
ASYNC_EVAL = (
    "async_eval is not needed and has no effect: candidates are played side by side, in other processes where the environment"
    ' is made by make_vec_env(..., vectorization="async")'
)


def without_effect(spec: AlgorithmSpec, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a constructor without those in `OF_CONSTRUCTORS`, unless the algorithm has a setting of that name.

    Raises:
        UsageError: an argument that has no effect has a value that is not accepted.
    """
    own = {field.name for field in attrs.fields(spec.config_type)}
    rest = dict(arguments)
    for name, (accepted, instead, families) in OF_CONSTRUCTORS.items():
        if name in rest and name not in own and spec.family in families:
            _require(name, rest.pop(name), accepted, instead)
    return rest


def check_learn_arguments(
    spec: AlgorithmSpec, arguments: Mapping[str, object], progress_bar: object, learn: Callable[..., object]
) -> None:
    """Check arguments of the method `learn` that rlsdk does not have, and the type of `progress_bar`.

    Raises:
        UsageError: an argument of stable-baselines3 has a value that is not accepted. SettingsError: an argument is unknown,
        or `progress_bar` is not a bool.
    """
    if not isinstance(progress_bar, bool | int | np.bool_):
        raise SettingsError(f"progress_bar = {progress_bar!r} is not a bool; after reset_num_timesteps give names")
    for name, value in arguments.items():
        if name in OF_LEARN:
            _require(f"learn({name}=)", value, *OF_LEARN[name])
        elif name == "async_eval" and spec.family == "population":
            if value is not None:
                warnings.warn(ASYNC_EVAL, stacklevel=3)
        else:
            known = set(inspect.signature(learn).parameters) - {"self", "documented"}
            raise SettingsError(f"learn has no argument {name!r}; {suggest(name, known)}")


def _require(name: str, value: object, accepted: tuple[object, ...], instead: str) -> None:
    if not any(value is good or (type(value) is type(good) and value == good) for good in accepted):
        raise UsageError(f"{name} = {value!r} has no counterpart here; {instead}")


def positive(value: object, name: str, *, least: int = 1) -> int:
    """The value as an int. Whole floats such as 1e6 are accepted.

    Raises:
        SettingsError: it is not a whole number of at least `least`.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    whole = whole or (isinstance(value, float | np.floating) and float(value).is_integer())
    if isinstance(value, int | float | np.integer | np.floating) and whole and value >= least:
        return int(value)
    kind = "positive whole number" if least == 1 else f"whole number of at least {least}"
    raise SettingsError(f"{name} = {shown(value, 60)} must be a {kind}")


def replaced_settings(custom_objects: object) -> dict[str, object]:
    """The argument `custom_objects` of `load`; raises SettingsError where it is another kind of value."""
    if not isinstance(custom_objects, Mapping | None):
        raise SettingsError(
            f"custom_objects = {shown(custom_objects, 50)} is not a table; write load(..., custom_objects={{'setting': value}})"
        )
    return dict(custom_objects or {})


OF_THE_AGENT = frozenset({"stats_window_size", "tensorboard_log", "verbose"})
"""Settings that only `learn` reads, not the parts of the agent."""
OF_MEMORIES = frozenset({"gamma", "n_steps"})
"""Settings that a replay buffer uses."""


def change_settings(agent: AssembledAgent, changes: Mapping[str, object]) -> None:
    """Change settings of the agent. Files that are written later contain the new values.

    A setting can change if the plugin lists it in `AlgorithmSpec.live`, or if it is in `OF_THE_AGENT`. The plan is made again,
    and every part with a method `reconfigure(config)` gets the new settings. After an error the agent is unchanged.

    Raises:
        SettingsError: a setting is unknown, mistyped or out of range. UsageError: it cannot change after the agent was made.
    """
    before, config = agent.config, evolve(agent.config, changes)
    changed = {name for name in changes if getattr(config, name) != getattr(before, name)}
    fixed = sorted(changed - OF_THE_AGENT - set(agent.spec.live))
    memory = agent.parts.buffer
    if memory is not None and ability(memory, BufferAbilities, "reconfigure") is None:
        fixed += sorted(changed & OF_MEMORIES & set(agent.spec.live))
    if fixed:
        raise UsageError(_refusal(agent, fixed[0]))
    if changed - OF_THE_AGENT:
        try:
            _reconfigure_parts(agent, config)
        except BaseException:  # some parts have the new settings already
            _reconfigure_parts(agent, before)
            raise
    agent.config = config


def _refusal(agent: AssembledAgent, name: str) -> str:
    kind = agent.class_name
    return (
        f"{name} cannot change while the agent lives; save the agent and load it with the new value:"
        f" {kind}.load(path, {name}=value), or make a new one"
    )


def _reconfigure_parts(agent: AssembledAgent, config: AgentConfig) -> None:
    plan = agent.parts.plan
    following = ability(plan, PlanAbilities, "with_settings")
    new = plan if following is None else following.with_settings(config, agent.context)
    built, normalizer = agent.parts, agent.preprocessing.normalizer
    for part in (built.policy, built.algorithm, built.buffer, built.behavior):
        if (able := ability(part, AlgorithmAbilities, "reconfigure")) is not None:
            able.reconfigure(config)
    gamma = getattr(config, "gamma", None)
    if normalizer is not None and normalizer.settings.gamma is None and isinstance(gamma, float | int):
        normalizer.rewards.gamma = float(gamma)
    if new != plan:
        agent.parts = replace(agent.parts, plan=new)
