"""Finds PettingZoo environments, and what their agents see and may do."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlsdk.environments import to_space
from rlsdk.errors import EnvironmentFault, SettingsError, raise_fault, shown
from rlsdk.runtime import pip_install
from rlsdk.spaces import Space, choices_of

PLACES = {
    "mpe2": "mpe",
    "pettingzoo.butterfly": "butterfly",
    "pettingzoo.classic": "classic",
    "pettingzoo.sisl": "pettingzoo[sisl]",
    "pettingzoo.atari": "pettingzoo[atari]",
}
"""Package in which tasks are looked for -> the extra of this package that it needs, or the requirement to install."""
TASK = re.compile(r"[a-z][a-z0-9_]{0,60}_v[0-9]{1,4}")
"""The name of a task. It is the name of a module in one of `PLACES`; files may contain it, so no other module is imported."""
MASK, SEEN = "action_mask", "observation"
Task = Any
"""An environment of PettingZoo, `ParallelEnv` or `AECEnv`. Their types name classes of agents, which differ by task."""


def make_task(source: object, kwargs: Mapping[str, object], form: str) -> Task:
    """A new environment of PettingZoo.

    Args:
        source: the name of a task such as `simple_spread_v3`, or a function that makes an environment.
        kwargs: the arguments of the task or the function.
        form: `parallel` or `aec`; the other form is converted.

    Raises:
        EnvironmentFault: there is no such task, a package is missing, it cannot be made or converted, or it has no agents.
        SettingsError: `source` is neither a name nor a function.
    """
    make = _function_of(source, form) if isinstance(source, str) else source
    if not callable(make):
        raise SettingsError(
            f"an environment of several agents is {shown(source)}; give the name of a task, such as 'simple_spread_v3', or a"
            " function that makes a new environment at each call"
        )
    try:
        made = make(**kwargs)
    except BaseException as error:
        raise_fault(error, f"task {name_of_source(source)!r} could not be made: it")
    return _converted(made, source, form)


def called(call: Callable[[], object], where: str, what: str) -> Any:
    """The result of a function that calls a task. Its errors become an EnvironmentFault; `where` begins the message."""
    try:
        return call()
    except BaseException as error:
        raise_fault(error, where, what)


def name_of_source(source: object) -> str:
    """The name of a task for messages."""
    return source.rpartition("/")[2] if isinstance(source, str) else getattr(source, "__name__", type(source).__name__)


def _function_of(name: str, form: str) -> Callable[..., object]:
    """The function of the module of a task: `parallel_env` or `env`."""
    name = name.rpartition("/")[2]
    if not TASK.fullmatch(name):
        raise EnvironmentFault(
            f"there is no task {shown(name, 100)}; give the name of a module with its version, such as 'simple_spread_v3', from"
            f" {', '.join(PLACES)}"
        )
    missing = []
    for place, needed in PLACES.items():
        requirement = needed if "[" in needed else f"rlsdk-pettingzoo[{needed}]"
        if find_spec(place.partition(".")[0]) is None:
            missing.append(f"{place} is not installed ({pip_install(requirement)})")
        elif find_spec(f"{place}.{name}") is not None:
            return _in_module(f"{place}.{name}", form, requirement)
    hint = "".join(f"; {text}" for text in missing)
    raise EnvironmentFault(f"there is no task {name!r} in {', '.join(PLACES)}{hint}")


def _in_module(module: str, form: str, requirement: str) -> Callable[..., object]:
    try:
        found = import_module(module)
    except ImportError as error:
        raise EnvironmentFault(
            f"task {module!r} needs a package that is not installed: {error}; {pip_install(requirement)}"
        ) from None
    first, second = ("parallel_env", "env") if form == "parallel" else ("env", "parallel_env")
    make: Callable[..., object] | None = getattr(found, first, None) or getattr(found, second, None)
    if not callable(make):
        raise EnvironmentFault(f"module {module!r} has neither parallel_env nor env, so it makes no environment")
    return make


def _converted(made: Task, source: object, form: str) -> Task:
    """The environment in the wanted form. Raises EnvironmentFault for another object, and for one that cannot be parallel."""
    from pettingzoo.utils import conversions  # imports much, which a missing task does not need

    name = name_of_source(source)
    if not hasattr(made, "step") or not callable(getattr(made, "action_space", None)):
        raise EnvironmentFault(f"{name!r} made {shown(made)}, not an environment of PettingZoo (ParallelEnv or AECEnv)")
    if not list(getattr(made, "possible_agents", None) or ()):
        raise EnvironmentFault(
            f"task {name!r} has no agents: its possible_agents is empty or missing; list every agent that may ever appear"
        )
    is_aec = hasattr(made, "agent_iter")
    if form == "aec":
        return made if is_aec else conversions.parallel_to_aec(made)
    if is_aec and not made.metadata.get("is_parallelizable", False):
        raise EnvironmentFault(
            f"in task {name!r} agents act one after another (is_parallelizable is False in its metadata), not all in each"
            f" step; train one role against others: the id 'pettingzoo-role/{name}', or rlsdk_pettingzoo.make_role_env"
        )
    return conversions.aec_to_parallel(made) if is_aec else made


def appeared_in_turns(task: Task, error: BaseException | None) -> object:
    """The agent that appeared in a parallel task whose conversion to turns raised `error`; None for other errors.

    The conversion looks such an agent up in tables by agent that the task returned for the agents that had acted.
    """
    from pettingzoo import ParallelEnv

    if not isinstance(error, KeyError) or not error.args or not isinstance(task.unwrapped, ParallelEnv):
        return None
    agent: object = error.args[0]
    return agent if agent in list(task.agents) and agent not in task.terminations else None


def role_of(agent: object) -> str:
    """The role of an agent: its name without the number, `adversary` for `adversary_0`."""
    return re.sub(r"[_-]?[0-9]+$", "", str(agent)) or str(agent)


def chosen_agents(task: Task, wanted: str | Sequence[str] | None, name: str) -> list[Hashable]:
    """The agents that learn, in the order of `possible_agents`: all, or those whose name or role is in `wanted`.

    Raises:
        SettingsError: an entry of `wanted` names no agent and no role.
    """
    agents = list(task.possible_agents)
    if wanted is None:
        return agents
    names = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else list(wanted)
    known = {*map(str, agents), *map(role_of, agents)}
    if not names or any(each not in known for each in names):
        raise SettingsError(f"agents = {shown(wanted)} of task {name!r}; it has {', '.join(sorted(known))}")
    return [agent for agent in agents if str(agent) in names or role_of(agent) in names]


def spaces_of_agents(task: Task, agents: Sequence[Hashable], name: str) -> tuple[Space, Space]:
    """(observation space without the action mask, action space) that all `agents` have.

    Raises:
        EnvironmentFault: two agents have different spaces. UnsupportedSpaceError: a space is of an unknown kind.
    """
    first: tuple[Space, Space] | None = None
    for agent in agents:
        seen = to_space(_without_mask(task.observation_space(agent)), "observation")
        pair = seen, to_space(task.action_space(agent), "action")
        first = first or pair
        for what, own, other in zip(("observation", "action"), pair, first, strict=True):
            if own != other:
                roles = ", ".join(dict.fromkeys(repr(role_of(each)) for each in agents))
                raise EnvironmentFault(
                    f"task {name!r}: agent {agent!r} has the {what} space {own}, agent {agents[0]!r} has {other}; agents that"
                    f" share a policy need equal spaces: choose those of one role with agents=, from {roles}"
                )
    if first is None:
        raise EnvironmentFault(f"task {name!r} has no agents")
    return first


def _without_mask(space: object) -> object:
    """The space of what a policy sees: without the entry `action_mask`, and without a Dict around a single observation."""
    if not isinstance(space, gymnasium.spaces.Dict) or MASK not in space.spaces:
        return space
    rest = {key: child for key, child in space.spaces.items() if key != MASK}
    return rest[SEEN] if set(rest) == {SEEN} else gymnasium.spaces.Dict(rest)


def seen_and_mask(observation: Any, info: Mapping[str, object]) -> tuple[Any, object]:
    """(what the policy sees, its action mask or None), from an observation of an agent and its `info`."""
    if not isinstance(observation, Mapping) or MASK not in observation:
        return observation, info.get(MASK)
    rest = {key: value for key, value in observation.items() if key != MASK}
    return (rest[SEEN] if set(rest) == {SEEN} else rest), observation[MASK]


def checked_mask(mask: object, action_space: Space, where: str) -> NDArray[np.bool_]:
    """An action mask as bool [A]. `where` begins the message.

    Raises:
        EnvironmentFault: it has another length, or values other than 0 and 1.
    """
    array, size = np.asarray(mask), sum(choices_of(action_space))
    if array.shape != (size,) or array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise EnvironmentFault(f"{where}: the action mask is {shown(mask, 100)}; it must be {size} values 0 or 1")
    return array.astype(np.bool_)


def require_choice(mask: NDArray[np.bool_], action_space: Space, where: str) -> None:
    """Raise EnvironmentFault if a mask bool [A] allows no value of a choice. `where` begins the message."""
    if not choices_allowed(mask, action_space):
        raise EnvironmentFault(f"{where}: its action mask allows no action; at least one of each choice is needed")


def choices_allowed(mask: NDArray[np.bool_], action_space: Space) -> bool:
    """Whether a mask bool [A] allows at least one value of every choice."""
    ends = np.cumsum(choices_of(action_space))[:-1]
    return all(bool(part.any()) for part in np.split(mask, ends))
