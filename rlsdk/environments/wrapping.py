"""Finds wrappers by name: those of rlsdk and gymnasium, and `package.module:Class` of any module. A name may have arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from rlsdk.environments import wrappers as own
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, message_of, raised, shown, suggest
from rlsdk.runtime.named_modules import named_module
from rlsdk.settings.environment_id import wrapper_call

Wrapper = Callable[[Any], Any]
"""A function that takes an environment and returns an environment. `Any`, because users' wrappers have their own types."""


def wrapper_of(choice: str | Wrapper) -> Wrapper:
    """The wrapper that `choice` names, with its arguments, as in `Twice(by=5)`; a callable is returned unchanged.

    Raises:
        SettingsError: there is no wrapper of that name, its arguments are not literals, or `choice` is not callable.
    """
    if not isinstance(choice, str):
        if not callable(choice):
            raise SettingsError(f"wrapper {choice!r} is neither a name nor a function of an environment")
        return choice
    name, arguments = wrapper_call(choice)
    made = _imported(name) if ":" in name else known_wrapper(name)
    return partial(made, **arguments) if arguments else made


def known_wrapper(name: str) -> Wrapper:
    """The wrapper of gymnasium or rlsdk with this name.

    Raises:
        SettingsError: there is none.
    """
    places = {each: place for place in (gymnasium.wrappers, own) for each in place.__all__ if each[0].isupper()}
    if name not in places:
        raise SettingsError(
            f"unknown wrapper {name!r}: neither package.module:Class, nor a name in gymnasium.wrappers or"
            f" rlsdk.environments; {suggest(name, places)}"
        )
    made: Wrapper = getattr(places[name], name)
    return made


def wrapped(wrapper: Wrapper, environment: object) -> gymnasium.Env[object, object]:
    """`wrapper(environment)`.

    Raises:
        EnvironmentFault: it raised, or gave no environment.
    """
    bare = wrapper.func if isinstance(wrapper, partial) else wrapper
    name = getattr(bare, "__name__", None) or shown(wrapper)
    try:
        made = wrapper(environment)
    except RlsdkError:
        raise
    except Exception as error:
        raise EnvironmentFault(
            f"wrapper {name} {raised(error)}; a wrapper is called with the environment and the arguments in its name, as in"
            f" {name}(ARGUMENT=VALUE), or those of functools.partial({name}, ...)"
        ) from error
    if not isinstance(made, gymnasium.Env):
        raise EnvironmentFault(
            f"wrapper {name} gave {shown(made)}, not a gymnasium.Env; return the wrapped environment"
        )
    return made


def _imported(choice: str) -> Wrapper:
    module, _, name = choice.rpartition(":")
    try:
        found: object = getattr(named_module(module), name)
    except RlsdkError:
        raise
    except Exception as error:  # code of the module may raise any error
        raise SettingsError(
            f"wrapper {choice!r} cannot be imported: {type(error).__name__}: {message_of(error)}; it must be"
            " package.module:Class of an installed package, of the working directory or of a folder in PYTHONPATH, or"
            " ./FILE.py:Class"
        ) from None
    if not callable(found):
        raise SettingsError(f"wrapper {choice!r} must be a class or a function, not a {type(found).__name__}")
    made: Wrapper = found
    return made
