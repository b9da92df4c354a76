"""Reading and assigning attributes of an agent. Settings are attributes, `model.gamma`; unknown names raise an error.

A setting is returned in the form that stable-baselines3 documents. Assigning one calls `change_settings`. The package rlsdk-sb3
has other attributes of stable-baselines3, or names a replacement.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np
import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import SettingsError, UnknownAttributeError, UnknownNameError, UsageError, shown, suggest
from rlsdk.interfaces import AlgorithmAbilities, BufferAbilities, PlanAbilities
from rlsdk.interfaces.abilities import ability
from rlsdk.runtime.lazy import advice_of_sb3, known_elsewhere, of_sb3, where_sb3_is
from rlsdk.settings import evolve
from rlsdk.settings.actor_critic import NetworkConfig
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.schedules import Constant, TrainFrequency
from rlsdk.training.run import EpisodeStatistics

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
        # torch.compile does not support attrgetter
        for name in names:
            value = getattr(value, name)
        return value

    return property(get, doc=doc)


def read(user_facing: object, agent: AssembledAgent | None, name: str) -> object:
    """The value of an attribute that is not a member of the class of `user_facing`: a setting, or what rlsdk-sb3 has for it.

    `agent` is None until it is assembled.

    Raises:
        UnknownAttributeError: the name is neither; the message names a replacement or the closest name.
    """
    kind = type(user_facing)
    if agent is not None and name in setting_names(type(agent.config)):
        return documented_form(getattr(agent.config, name))
    if (found := known_elsewhere(user_facing, name)) is not NotImplemented:
        return found
    if (
        agent is not None
        and (settings := getattr(agent.config, "policy_kwargs", None)) is not None
        and hasattr(settings, name)
    ):
        raise UnknownAttributeError(
            f"{kind.__name__} has no attribute {name!r}; it is a setting of the networks: model.config.policy_kwargs.{name}"
        )
    hint = "" if agent is None or name.startswith("_") else f"; {_closest(kind, agent, name)}{where_sb3_is()}"
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
            raise UsageError(f"{kind.__name__}.{name} cannot be assigned; {INSTEAD.get(name, MADE)}")
        object.__setattr__(user_facing, name, value)
    elif agent is not None and name in setting_names(type(agent.config)):
        change_settings(agent, {name: value})
    elif member is not None or name in _declared(kind):
        object.__setattr__(user_facing, name, value)
    elif why := advice_of_sb3("assignment", name):
        raise UsageError(f"{kind.__name__}.{name} cannot be assigned; {why}")
    elif name.startswith("_"):
        object.__setattr__(user_facing, name, value)
    else:
        raise UnknownAttributeError(
            f"{kind.__name__} has no attribute or setting {name!r}; {_closest(kind, agent, name)}; to store your own value,"
            " begin its name with an underscore, or declare it in the class body of a subclass"
        )


def names(members: Iterable[str], agent: AssembledAgent | None) -> list[str]:
    """The names that `dir` lists: members, settings and attributes of stable-baselines3."""
    settings = frozenset[str]() if agent is None else setting_names(type(agent.config))
    try:
        return sorted({*members, *settings, *of_sb3("ATTRIBUTES", "dir")})
    except UnknownNameError:
        return sorted({*members, *settings})


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


def episode_statistics(agent: AssembledAgent) -> EpisodeStatistics | None:
    """The episode statistics of the running training, or of the last one; None before the first."""
    if agent.run is not None:
        return agent.run.episode_statistics
    if agent.stored_log is None:
        return None
    found = EpisodeStatistics(agent.config.stats_window_size)
    found.load_state_dict(agent.stored_log)
    return found


MADE = "it follows from how the agent was made and trained"
INSTEAD = {
    "policy": "load weights with set_parameters, or make the agent with another policy",
    "seed": "call set_random_seed(seed)",
    "device": "load the agent on another device: load(path, device=...)",
    "replay_buffer": "read one with load_replay_buffer(path)",
    "logger": "call set_logger(logger)",
    "normalizer": "normalization is chosen when the agent is made",
    "observation_space": "it is the environment's",
    "action_space": "it is the environment's",
}
"""Member that cannot be assigned -> what to do instead."""


def without_effect(spec: AlgorithmSpec, arguments: Mapping[str, object], method: str) -> dict[str, object]:
    """The arguments of the constructor or of `learn`, without those that only stable-baselines3 has and that have no effect.

    Raises:
        UsageError: one of them has a value that would have an effect there.
    """
    if arguments.keys() <= setting_names(spec.config_type):
        return dict(arguments)
    try:
        drop = of_sb3("without_effect", method)
    except UnknownNameError:
        # then unknown arguments are errors
        return dict(arguments)
    left: dict[str, object] = drop(spec, arguments, method)
    return left


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
    for name in without_effect(spec, arguments, "learn") if arguments else ():
        known = set(inspect.signature(learn).parameters) - {"self", "documented"}
        raise SettingsError(f"learn has no argument {name!r}; {suggest(name, known)}{where_sb3_is()}")


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
OF_BUFFERS = frozenset({"gamma", "n_steps"})
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
    buffer = agent.parts.buffer
    if buffer is not None and ability(buffer, BufferAbilities, "reconfigure") is None:
        fixed += sorted(changed & OF_BUFFERS & set(agent.spec.live))
    if fixed:
        raise UsageError(_refusal(agent, fixed[0]))
    if changed - OF_THE_AGENT:
        try:
            _reconfigure_parts(agent, config)
        except BaseException:
            # some parts have the new settings already
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
