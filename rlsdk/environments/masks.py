"""Action masks: how wide they are, where an environment offers them, and whether they leave a choice.

A mask is bool [A], True where allowed. A Discrete action has one entry per value, a MultiDiscrete one per value of each
component, one after the other, a MultiBinary two per bit (may it be 0, may it be 1); a Box has none. Entries of a Dict or
Tuple stand in the order of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import MaskError
from rlsdk.spaces import Space, choices_of

METHOD, INFO = "action_masks", "action_mask"


class MaskRule:
    """What a mask of an action space looks like; made once, applied at every step."""

    def __init__(self, action_space: Space) -> None:
        sizes = choices_of(action_space)
        self.size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)

    def row(self, mask: Any) -> NDArray[np.bool_]:
        """One mask, checked for its length and kind.

        Raises:
            MaskError: another length, or values that are neither true nor false.
        """
        array = np.asarray(mask)
        if array.shape != (self.size,):
            raise MaskError(f"an action mask has shape {array.shape}; this action space needs ({self.size},)")
        if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
            raise MaskError(
                f"an action mask holds {np.setdiff1d(array, (0, 1))[:3]}; accepted: true and false, or 1 and 0"
            )
        return array.astype(np.bool_, copy=False)

    def without_choice(self, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The rows of `masks` [B, A] in which some choice has no allowed value."""
        return np.flatnonzero(~np.logical_or.reduceat(masks, self._starts, axis=1).all(axis=1))

    def require_choice(self, masks: NDArray[np.bool_]) -> None:
        """Raises MaskError when a row of `masks` [B, A] allows nothing."""
        if not np.logical_or.reduceat(masks, self._starts, axis=1).all():
            row = int(self.without_choice(masks)[0])
            raise MaskError(
                f"the action mask of environment {row} allows no action: {masks[row].astype(int).tolist()};"
                " at least one value of every choice must be allowed"
            )


def mask_methods(environments: Sequence[Any]) -> list[Callable[[], Any]] | None:
    """The method `action_masks` of each environment, found through its wrappers; None if they have none."""
    found = []
    for environment in environments:
        try:
            method = environment.get_wrapper_attr(METHOD)
        except AttributeError:
            return None
        found.append(method)
    return found if all(map(callable, found)) else None
