"""A wrapper that gives an environment a method `action_masks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from rlsdk.environments.adapters.mask_method import mask_method


class ActionMasker(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds a method `action_masks()` that returns the result of `mask_fn`.

    `mask_fn` is a function that takes the environment, or the name of a method of the environment or of a wrapper. The method
    is called without arguments, or with the environment if it needs an argument.
    """

    def __init__(self, env: gymnasium.Env[object, object], mask_fn: Callable[[Any], object] | str) -> None:
        RecordConstructorArgs.__init__(self, mask_fn=mask_fn)
        gymnasium.Wrapper.__init__(self, env)
        self._mask = mask_method(env, mask_fn) if isinstance(mask_fn, str) else lambda: mask_fn(env)

    def action_masks(self) -> NDArray[np.bool_]:
        """The current action mask: bool [A], True where the action is allowed."""
        return np.asarray(self._mask(), dtype=bool)
