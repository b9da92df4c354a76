"""Finds wrappers by name: those of rlsdk and gymnasium, and `package.module:Class` of any installed package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium

from rlsdk.environments import wrappers as own
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, message_of, raised, shown, suggest

Wrapper = Callable[[Any], Any]
"""A function that takes an environment and returns an environment. `Any`, because users' wrappers have their own types."""


def wrapper_of(choice: str | Wrapper) -> Wrapper:
    """The wrapper that `choice` names; a callable is returned unchanged.

    Raises:
        SettingsError: there is no wrapper of that name, or `choice` is not callable.
    """
    if not isinstance(choice, str):
        if not callable(choice):
            raise SettingsError(f"wrapper {choice!r} is neither a name nor a function of an environment")
        return choice
    if ":" in choice:
        return _imported(choice)
    places = {name: place for place in (gymnasium.wrappers, own) for name in place.__all__ if name[0].isupper()}
    if choice not in places:
        raise SettingsError(
            f"unknown wrapper {choice!r}: neither package.module:Class, nor a name in gymnasium.wrappers or"
            f" rlsdk.environments; {suggest(choice, places)}"
        )
    made: Wrapper = getattr(places[choice], choice)
    return made


def wrapped(wrapper: Wrapper, environment: object) -> gymnasium.Env[object, object]:
    """`wrapper(environment)`.

    Raises:
        EnvironmentFault: it raised, or gave no environment.
    """
    name = getattr(wrapper, "__name__", None) or shown(wrapper)
    try:
        made = wrapper(environment)
    except RlsdkError:
        raise
    except Exception as error:
        raise EnvironmentFault(
            f"wrapper {name} {raised(error)}; a wrapper is called with the environment alone: give further arguments with"
            f" functools.partial({name}, ...)"
        ) from error
    if not isinstance(made, gymnasium.Env):
        raise EnvironmentFault(
            f"wrapper {name} gave {shown(made)}, not a gymnasium.Env; return the wrapped environment"
        )
    return made


def _imported(choice: str) -> Wrapper:
    module, _, name = choice.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except Exception as error:  # code of the module may raise any error
        raise SettingsError(
            f"wrapper {choice!r} cannot be imported: {type(error).__name__}: {message_of(error)}; it must be"
            " package.module:Class of an installed package, or of a folder in PYTHONPATH"
        ) from None
    if not callable(found):
        raise SettingsError(f"wrapper {choice!r} must be a class or a function, not a {type(found).__name__}")
    made: Wrapper = found
    return made
