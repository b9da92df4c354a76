"""Attributes and methods of environments, found through their wrappers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, raised, shown

Environment = gymnasium.Env[object, object]
"""Any gymnasium environment."""
Indices = int | Sequence[int] | None
"""Which environments: one, several, or all (None)."""


def chosen(indices: Indices, count: int) -> list[int]:
    """The environments meant, as numbers from 0.

    Raises:
        SettingsError: there is no such environment.
    """
    wanted = range(count) if indices is None else [indices] if isinstance(indices, int) else list(indices)
    for index in wanted:
        if not isinstance(index, int) or not -count <= index < count:
            raise SettingsError(f"there is no environment number {index!r}; there are {count}, from 0 to {count - 1}")
    return [index % count for index in wanted]


def named(environment: Environment) -> str:
    """What to call an environment in a message: its id or class, and its wrappers; never its own `__str__`."""
    layers, layer = [], environment
    while hasattr(layer, "env") and layer is not layer.unwrapped:
        layers.append(type(layer).__name__)
        layer = layer.env
    spec = getattr(layer, "spec", None)
    return "<".join([*layers, type(layer).__name__ if spec is None else spec.id]) + ">" * len(layers)


def name_of_class(kind: type[object]) -> str:
    """Where a class is defined, and what it is called there."""
    return f"{kind.__module__}.{kind.__qualname__}"


def wrappers_of(environment: Any) -> list[str]:
    """The classes of the wrappers around an environment, outermost first, and the classes these are derived from."""
    found, layer = [], environment
    while layer is not layer.unwrapped:
        found += [name_of_class(kind) for kind in type(layer).__mro__ if kind is not object]
        layer = layer.env
    return found


def read(environment: Environment, name: str) -> Any:
    """The value of an attribute.

    Raises:
        EnvironmentFault: neither the environment nor a wrapper has it.
    """
    try:
        return environment.get_wrapper_attr(name)
    except AttributeError:
        raise EnvironmentFault(f"environment {named(environment)} has no attribute {name!r}") from None


def write(environment: Any, name: str, value: object) -> None:
    """Set an attribute on the first wrapper that has it, on the environment itself where none does."""
    layer = environment
    while name not in vars(layer) and layer is not layer.unwrapped:
        layer = layer.env
    setattr(layer, name, value)


def call_of(environment: Environment, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """Call a method.

    Raises:
        EnvironmentFault: it does not exist, is none, or raises.
    """
    method = read(environment, name)
    if not callable(method):
        raise EnvironmentFault(f"{name!r} of environment {named(environment)} is no method but {shown(method)}")
    try:
        return method(*args, **kwargs)
    except RlsdkError:
        raise
    except Exception as error:
        raise EnvironmentFault(f"environment {named(environment)} {raised(error, name)}") from error
