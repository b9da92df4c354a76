"""Whether environments were stepped or reset since a training ended: users share them, and step them themselves."""

from __future__ import annotations

from collections.abc import Hashable

from gymnasium.wrappers import TimeLimit

from rlsdk.environments.adapters.attributes import layers_of

_RESETS: dict[int, int] = {}
"""How often the environment of this `id` was reset for a new use; an id that is used again continues counting."""


def count_reset(environment: object) -> None:
    """Note that a user of `environment` begins with it."""
    inner = id(getattr(environment, "unwrapped", environment))
    _RESETS[inner] = _RESETS.get(inner, 0) + 1


def resets_of(environment: object) -> int:
    """How often users have begun with `environment`."""
    return _RESETS.get(id(getattr(environment, "unwrapped", environment)), 0)


def fingerprint(environment: object) -> tuple[Hashable, ...]:
    """What changes when a gymnasium environment is stepped or reset: its users, its time limits, its random numbers."""
    *wrappers, inner = layers_of(environment)
    found: list[Hashable] = [resets_of(environment)]
    found += [layer._elapsed_steps for layer in wrappers if isinstance(layer, TimeLimit)]
    generator = vars(inner).get("_np_random")
    if generator is not None:
        found.append(str(generator.bit_generator.state))
    return tuple(found)
