"""Finds the method of an environment that returns action masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

from rlsdk.environments.adapters.attributes import Environment, named
from rlsdk.errors import SettingsError


def mask_method(env: Environment, name: str) -> Callable[[], object]:
    """The method `name` of the environment or of a wrapper, as a function without arguments.

    Raises:
        SettingsError: neither the environment nor a wrapper has the method.
    """
    method: object = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    if not callable(method):
        raise SettingsError(
            f"{named(env)} has no method {name!r}; give the name of one, or a function of the environment"
        )
    try:
        inspect.signature(method).bind()
    except TypeError:
        return partial(method, env)  # as in sb3-contrib, the method may take the environment as its argument
    except ValueError:
        pass  # the method is written in C and its signature is unknown
    return cast("Callable[[], object]", method)
