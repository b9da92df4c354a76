"""Whether environments were stepped or reset since a training ended: users share them, and step them themselves."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gymnasium.wrappers import TimeLimit

_RESETS: dict[int, int] = {}
"""How often the environment of this `id` was reset for a new use; an id that is used again goes on counting."""


def count_reset(environment: object) -> None:
    """Note that a user of `environment` begins with it."""
    inner = id(getattr(environment, "unwrapped", environment))
    _RESETS[inner] = _RESETS.get(inner, 0) + 1


def resets_of(environment: object) -> int:
    """How often users have begun with `environment`."""
    return _RESETS.get(id(getattr(environment, "unwrapped", environment)), 0)


def fingerprint(environment: Any) -> tuple[Hashable, ...]:
    """What changes when a gymnasium environment is stepped or reset: its users, its time limits, its random numbers."""
    inner, layer = environment.unwrapped, environment
    found: list[Hashable] = [resets_of(environment)]
    while layer is not inner:
        if isinstance(layer, TimeLimit):
            found.append(layer._elapsed_steps)
        layer = layer.env
    generator = vars(inner).get("_np_random")
    if generator is not None:
        found.append(str(generator.bit_generator.state))
    return tuple(found)
