"""Gives an environment an `action_masks` method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import named
from rlsdk.errors import SettingsError


class ActionMasker(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """`action_masks()` returns the result of `mask_fn`: a function of the environment, or the name of one of its methods."""

    def __init__(self, env: gymnasium.Env[object, object], mask_fn: Callable[[Any], object] | str) -> None:
        RecordConstructorArgs.__init__(self, mask_fn=mask_fn)
        gymnasium.Wrapper.__init__(self, env)
        if isinstance(mask_fn, str):
            method = getattr(env.unwrapped, mask_fn, None)
            if not callable(method):
                raise SettingsError(
                    f"{named(env)} has no method {mask_fn!r}; give the name of one, or a function of the environment"
                )
            self._mask: Callable[[], object] = method
        else:
            self._mask = lambda: mask_fn(env)

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where the action is allowed now."""
        return np.asarray(self._mask(), dtype=bool)
