"""Restricts policies to a part of the action space."""

from __future__ import annotations

from dataclasses import replace

import attrs
import numpy as np

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.spaces import Box


def within_action_bounds(context: BuildContext, bounds: tuple[float, float] | None) -> BuildContext:
    """Return the context with its Box action space narrowed to `bounds` (low, high) in every dimension; unchanged if
    None.

    Everything built from this context acts only inside these bounds, including exploration and warm-up. An unbounded
    space becomes bounded.

    Raises:
        SettingsError: the bounds are not inside the action space.
    """
    space = context.action_space
    if bounds is None or not isinstance(space, Box):
        return context
    low, high = (np.full_like(space.low, bound) for bound in bounds)
    if (low < space.low).any() or (high > space.high).any():
        raise SettingsError(
            f"action_bounds = {list(bounds)} are not inside the action space, which goes from {space.low.max():g} to"
            f" {space.high.min():g}; narrow them"
        )
    return replace(context, action_space=attrs.evolve(space, low=low, high=high))
