"""Gives an environment an `action_masks` method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import named
from rlsdk.errors import SettingsError


class ActionMasker(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """`action_masks()` returns the result of `mask_fn`: a function of the environment, or the name of a method.

    The method may be one of the environment or of a wrapper. It is called without arguments, or with the environment if it
    needs one.
    """

    def __init__(self, env: gymnasium.Env[object, object], mask_fn: Callable[[Any], object] | str) -> None:
        RecordConstructorArgs.__init__(self, mask_fn=mask_fn)
        gymnasium.Wrapper.__init__(self, env)
        method = _method(env, mask_fn) if isinstance(mask_fn, str) else lambda: mask_fn(env)
        self._mask: Callable[[], object] = method

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where the action is allowed now."""
        return np.asarray(self._mask(), dtype=bool)


def _method(env: gymnasium.Env[object, object], name: str) -> Callable[[], object]:
    """The method of the environment or of a wrapper, ready to be called.

    Raises:
        SettingsError: neither has it.
    """
    method: Any = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
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
