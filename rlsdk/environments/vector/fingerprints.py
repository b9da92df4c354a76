"""Fingerprints of environments, which show whether other code stepped or reset them since a training ended."""

from __future__ import annotations

from collections.abc import Hashable

from gymnasium.wrappers import TimeLimit

from rlsdk.environments.adapters.attributes import layers_of

_RESETS: dict[int, int] = {}
"""`id` of an environment -> number of resets by vector environments. If Python reuses an id, its count continues."""


def count_reset(environment: object) -> None:
    """Count a reset of all environments by the vector environment that contains `environment`."""
    inner = id(getattr(environment, "unwrapped", environment))
    _RESETS[inner] = _RESETS.get(inner, 0) + 1


def resets_of(environment: object) -> int:
    """The number of resets that `count_reset` has counted for `environment`."""
    return _RESETS.get(id(getattr(environment, "unwrapped", environment)), 0)


def fingerprint(environment: object) -> tuple[Hashable, ...]:
    """A value that changes when a gymnasium environment is stepped or reset.

    It consists of the number of counted resets, the steps of its time limits, and the state of its random generator.
    """
    *wrappers, inner = layers_of(environment)
    found: list[Hashable] = [resets_of(environment)]
    found += [layer._elapsed_steps for layer in wrappers if isinstance(layer, TimeLimit)]
    generator = vars(inner).get("_np_random")
    if generator is not None:
        found.append(str(generator.bit_generator.state))
    return tuple(found)
