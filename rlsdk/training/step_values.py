"""The `locals` of functions f(locals, globals) and of callbacks with the interface of stable-baselines3."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from rlsdk.environments.adapters.documented_infos import documented_infos
from rlsdk.environments.adapters.nested import Arrays
from rlsdk.errors import SettingsError
from rlsdk.records import EnvStep, Features
from rlsdk.tree import map_tensors

Locals = dict[str, Any]
"""The documented entries of a step or of an evaluation, by name."""


def require_two_arguments(function: Callable[..., object]) -> None:
    """Raises SettingsError if a function cannot be called as f(locals, globals)."""
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
    """The entries of one step in numpy: arrays over B environments, nested like the spaces, and one info per
    environment.

    Args:
        step: the step.
        decode: converts actions to the form that the environments take.
        seconds: the time since the training or evaluation began.
    """
    ended = (step.terminated | step.truncated).cpu().numpy()
    finals = None if step.final_observation is None else _arrays(step.final_observation.features)
    action = map_tensors(lambda leaf: leaf.cpu(), step.action)
    return {
        "step": step,
        "actions": _arrays(action),
        "clipped_actions": decode(action),
        "new_obs": _arrays(step.observation.features),
        "rewards": step.reward.cpu().numpy().copy(),
        "dones": ended,
        "infos": documented_infos(step, finals, seconds),
    }


def _arrays(value: Features) -> Arrays:
    """Copy tensors into arrays."""
    if isinstance(value, dict):
        return {key: _arrays(child) for key, child in value.items()}
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else value.cpu().numpy().copy()
