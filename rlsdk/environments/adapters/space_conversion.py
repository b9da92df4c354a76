"""Conversion of gymnasium's spaces to rlsdk's spaces, and back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from rlsdk import spaces
from rlsdk.environments.adapters.attributes import Environment, attribute_of, named
from rlsdk.errors import EnvironmentFault, UnsupportedSpaceError, shown
from rlsdk.spaces import MAX_DEPTH, Space

MISSING = object()

MAX_CHOICES = 2**20
"""The largest number of values of a discrete space, summed over its components: networks have a number for each value."""
MAX_KEY = 200
"""The largest number of characters in a key of a Dict space: names in agent files contain the keys and are limited, too."""

GymSpace = gym_spaces.Space[Any]
"""Any space of gymnasium, for modules that do not import gymnasium."""


def to_space(space: object, path: str = "space", depth: int = 0) -> Space:
    """The space of rlsdk for a space of gymnasium.

    Args:
        space: a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
        path: the name of the space in messages.
        depth: the number of Dict and Tuple spaces around it.

    Raises:
        UnsupportedSpaceError: the space is of another kind, is empty, has more than `MAX_CHOICES` discrete values, or cannot be
            stored in agent files.
    """
    _require_size(space, path)
    _require_storable(space, path, depth)
    if isinstance(space, gym_spaces.Box):
        return spaces.Box(space.low, space.high, tuple(space.shape), np.dtype(space.dtype).name)
    if isinstance(space, gym_spaces.Discrete):
        return spaces.Discrete(int(space.n), int(space.start))
    if isinstance(space, gym_spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise UnsupportedSpaceError(
                f"{path} is a MultiDiscrete of shape {space.nvec.shape}; flatten it to one dimension"
            )
        return spaces.MultiDiscrete(tuple(map(int, space.nvec)), tuple(map(int, space.start)))
    if isinstance(space, gym_spaces.MultiBinary):
        return spaces.MultiBinary(tuple(space.shape))
    if isinstance(space, gym_spaces.Dict):
        return spaces.Dict({key: to_space(child, f"{path}[{key!r}]", depth + 1) for key, child in space.spaces.items()})
    if isinstance(space, gym_spaces.Tuple):
        return spaces.Tuple(tuple(to_space(child, f"{path}[{i}]", depth + 1) for i, child in enumerate(space.spaces)))
    raise UnsupportedSpaceError(
        f"{path} is a {type(space).__name__}; rlsdk supports Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
    )


def to_gymnasium(space: Space, *, by_name: bool = False) -> GymSpace:
    """The gymnasium space for a space of rlsdk. Keys of a Dict keep their order; `by_name` sorts them."""
    if isinstance(space, spaces.Box):
        return gym_spaces.Box(np.array(space.low), np.array(space.high), space.shape, np.dtype(space.dtype).type)
    if isinstance(space, spaces.Discrete):
        return gym_spaces.Discrete(space.n, start=space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return gym_spaces.MultiDiscrete(np.array(space.nvec), start=np.array(space.start))
    if isinstance(space, spaces.MultiBinary):
        return gym_spaces.MultiBinary(list(space.shape) if len(space.shape) != 1 else space.shape[0])
    if isinstance(space, spaces.Dict):
        children = sorted(space.spaces.items()) if by_name else space.spaces.items()
        # gymnasium sorts the keys of a plain dict, and entries of action masks follow the order of the keys
        return gym_spaces.Dict(OrderedDict((key, to_gymnasium(child, by_name=by_name)) for key, child in children))
    return gym_spaces.Tuple([to_gymnasium(child, by_name=by_name) for child in space.spaces])


def told_apart(one: Space, other: Space) -> tuple[str, str]:
    """Two spaces that differ, as texts that differ: with the bounds of a Box where nothing else does."""
    texts = str(one), str(other)
    return texts if texts[0] != texts[1] else (_with_bounds(one), _with_bounds(other))


def _with_bounds(space: Space) -> str:
    boxes = [leaf for _, leaf in spaces.leaf_spaces(space) if isinstance(leaf, spaces.Box)]
    bounds = [f"{shown(box.low.tolist(), 60)} to {shown(box.high.tolist(), 60)}" for box in boxes]
    return f"{space} from {', '.join(bounds)}"


def spaces_of(env: Environment) -> tuple[Space, Space]:
    """(observation space, action space) of a gymnasium environment.

    Raises:
        EnvironmentFault: the environment lacks a space. UnsupportedSpaceError: see `to_space`.
    """
    observation, action = _of(env, "observation_space"), _of(env, "action_space")
    return to_space(observation, "observation"), to_space(action, "action")


def _of(env: Environment, name: str) -> object:
    if (space := attribute_of(env, name, MISSING)) is MISSING:
        fix = f"set self.{name} to a space of gymnasium in __init__, or {name} in the class"
        raise EnvironmentFault(f"environment {named(env)} has no {name}; {fix}")
    return space


def _require_size(space: object, path: str) -> None:
    if isinstance(space, gym_spaces.Box | gym_spaces.MultiBinary | gym_spaces.MultiDiscrete) and 0 in space.shape:
        raise UnsupportedSpaceError(f"{path} is a {type(space).__name__} of shape {space.shape}, which holds no number")
    if isinstance(space, gym_spaces.Dict | gym_spaces.Tuple) and not len(space.spaces):
        raise UnsupportedSpaceError(f"{path} is a {type(space).__name__} without parts")
    if isinstance(space, gym_spaces.Discrete):
        choices = int(space.n)
    elif isinstance(space, gym_spaces.MultiDiscrete):
        choices = int(space.nvec.astype(float).sum())
    else:
        return
    if choices > MAX_CHOICES:
        raise UnsupportedSpaceError(
            f"{path} has {choices} discrete values, and networks take one number for each; at most {MAX_CHOICES} are"
            " accepted: use a Box, or a MultiDiscrete of its digits"
        )


def _require_storable(space: object, path: str, depth: int) -> None:
    """Raises UnsupportedSpaceError for a space with which an agent could be saved, but not loaded."""
    if depth > MAX_DEPTH:
        raise UnsupportedSpaceError(f"{path} lies in more than {MAX_DEPTH} Dict or Tuple spaces; nest them less deep")
    for key in space.spaces if isinstance(space, gym_spaces.Dict) else ():
        if isinstance(key, str) and len(key) > MAX_KEY:
            raise UnsupportedSpaceError(
                f"{path} has the key {shown(key, 50)} of {len(key)} characters; at most {MAX_KEY} are accepted: shorten it"
            )
