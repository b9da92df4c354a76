"""Finds the method that gives action masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

from rlsdk.environments.adapters.attributes import Environment, named
from rlsdk.errors import SettingsError


def mask_method(env: Environment, name: str) -> Callable[[], object]:
    """The method of the environment or of a wrapper, ready to be called.

    Raises:
        SettingsError: neither has it.
    """
    method: object = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    if not callable(method):
        raise SettingsError(
            f"{named(env)} has no method {name!r}; give the name of one, or a function of the environment"
        )
    try:
        inspect.signature(method).bind()
    except TypeError:
        return partial(method, env)  # the documented form: a method that is given the environment
    except ValueError:
        pass  # written in C: its arguments are not known
    return cast("Callable[[], object]", method)
