"""The `locals` of functions f(locals, globals) and of callbacks with the documented interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.records import EnvStep, Features
from rlsdk.tree import map_tensors

Locals = dict[str, Any]
"""The documented entries of a step or of an evaluation by name."""
Arrays: TypeAlias = "NDArray[np.generic] | dict[str, Arrays] | tuple[Arrays, ...]"
"""Arrays nested as a space is."""


def require_two_arguments(function: Callable[..., object]) -> None:
    """Raises SettingsError when a function cannot be called as f(locals, globals)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # written in C: its arguments are not known
    try:
        signature.bind({}, {})
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise SettingsError(f"callback {name}{signature} must take two arguments: f(locals, globals) -> bool") from None


def step_values(step: EnvStep, decode: Callable[[Tensor], object], seconds: float) -> Locals:
    """Entries of one step, in numpy: arrays over B environments, nested as the spaces are, and one info for each; `decode`
    gives actions as the environments take them, and `seconds` have passed since the training or evaluation began."""
    ended = (step.terminated | step.truncated).cpu().numpy()
    action = map_tensors(lambda leaf: leaf.cpu(), step.action)
    return {
        "step": step,
        "actions": _arrays(action),
        "clipped_actions": decode(action),
        "new_obs": _arrays(step.observation.features),
        "rewards": step.reward.cpu().numpy().copy(),
        "dones": ended,
        "infos": _infos(step, ended, seconds),
    }


def _infos(step: EnvStep, ended: NDArray[np.bool_], seconds: float) -> list[dict[str, object]]:
    """The infos of environments, with the documented entries that vector environments add."""
    given = step.infos if step.infos is not None else [{} for _ in ended]
    cut = (step.truncated & ~step.terminated).tolist()
    infos = [{**info, "TimeLimit.truncated": cut[i]} for i, info in enumerate(given)]
    if step.final_observation is not None:
        finals = _arrays(step.final_observation.features)
        for row, i in enumerate(np.flatnonzero(ended)):
            infos[i]["terminal_observation"] = _row(finals, row)
    for episode in step.episodes:
        context = {"r": episode.episode_return, "l": episode.length, "t": round(seconds, 6)}
        infos[episode.env].setdefault("episode", context)
    return infos


def _arrays(value: Features) -> Arrays:
    """Tensors as arrays of their own."""
    if isinstance(value, dict):
        return {key: _arrays(child) for key, child in value.items()}
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else value.cpu().numpy().copy()


def _row(value: Arrays, row: int) -> object:
    if isinstance(value, dict):
        return {key: _row(child, row) for key, child in value.items()}
    return tuple(_row(child, row) for child in value) if isinstance(value, tuple) else value[row]
