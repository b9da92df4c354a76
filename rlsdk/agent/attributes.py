"""Reading and assigning attributes of an agent. Settings are attributes, `model.gamma`; unknown names raise an error.

A setting is returned in the form that stable-baselines3 documents. Assigning one calls `change_settings`. Other attributes of
stable-baselines3 are computed (`DERIVED`), or raise an error that names a replacement (`ELSEWHERE`).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import attrs
import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.reconfiguration import change_settings
from rlsdk.errors import UnknownAttributeError, UsageError, suggest
from rlsdk.records import Episode
from rlsdk.settings.frequency import TrainFrequency
from rlsdk.settings.networks import NetworkConfig
from rlsdk.settings.schedules import Constant
from rlsdk.training.episode_statistics import EpisodeStatistics
from rlsdk.training.groups import joined
from rlsdk.tree import map_tensors


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


class Own:
    """A read-only attribute of `Agent` that returns an attribute of its `AssembledAgent`."""

    fset = None
    """None, as for a property without a setter."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._names = name, ("_assembled", *(self._path or name).split("."))

    def __get__(self, instance: object, owner: type) -> object:
        if instance is None:
            return self
        value = instance
        for name in self._names:  # torch.compile does not support attrgetter
            value = getattr(value, name)
        return value

    def __set__(self, instance: object, value: object) -> None:
        raise UsageError(f"{type(instance).__name__}.{self._name} cannot be assigned")


def own(path: str | None = None) -> Any:
    """An `Own` for a class body, `name: Type = own()`; type checkers see a `Type`.

    Args:
        path: the attribute of `AssembledAgent`, with dots if nested; None: `name`.
    """
    return Own(path)


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
    if isinstance(member, property | Own):
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


def _updates(agent: AssembledAgent) -> int:
    return agent.counts.updates


def _finished_episodes(agent: AssembledAgent) -> int:
    episode_statistics, run = _episodes(agent), agent.run
    finished = 0 if episode_statistics is None else episode_statistics.finished_episodes
    return finished + (0 if run is None else len(run.episodes_in_round))


def _progress_remaining(agent: AssembledAgent) -> float:
    run = agent.run
    return 1.0 if run is None else run.progress_remaining


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
    "_n_updates": _updates,
    "_episode_num": _finished_episodes,
    "_current_progress_remaining": _progress_remaining,
    "_last_obs": _last_observation,
}
"""Attribute of stable-baselines3 -> the function that computes it when it is read."""

ELSEWHERE = {
    "rollout_buffer": "rollouts are records: an algorithm's `update` gets one, and see rlsdk.training.collect",
    "collect_rollouts": "collecting is rlsdk.training.collect.collect, which needs an environment and a policy",
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
