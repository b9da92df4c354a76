"""What the next reset of several environments gets: seeds derived from one seed, and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import gymnasium

from rlsdk.environments.adapters.attributes import layers_of
from rlsdk.errors import SettingsError, shown
from rlsdk.runtime.seeding import checked_seed, derive

Options: TypeAlias = "dict[str, Any] | None"
"""The argument `options` of an environment's `reset`; None: it is not given."""
SPACES = ("action_space", "observation_space")
SPACES_OF_VECTORS = (*SPACES, "single_action_space", "single_observation_space")
APART = 0x5EED5
"""Separates the numbers that a space draws from those of the environment, whose generator gets the seed itself."""


def seed_of(seed: int, index: int) -> int:
    """The seed of environment number `index`, derived from `seed`."""
    return derive(seed, "environment", index) % 2**31


def seed_spaces(environment: object, seed: int | None, names: Sequence[str] = SPACES) -> None:
    """Seed the spaces of an environment and of its wrappers, which `reset(seed=)` does not do; None: do nothing.

    Environments may draw from them, as in `self.action_space.sample()`. A space that several layers share is seeded once.
    """
    if seed is None:
        return
    seeded = list[object]()
    for layer in layers_of(environment):
        for name in names:
            space = getattr(layer, name, None)
            if isinstance(space, gymnasium.Space) and not any(space is other for other in seeded):
                space.seed((seed ^ APART) + len(seeded))
                seeded.append(space)


class Seeds:
    """Derives the seeds of a reset from its seed, or from the seed with which the environments were made.

    The latter is used once, for the first reset, and only if this reset has no seed.
    """

    def __init__(self, first: int | None = None, offset: int = 0) -> None:
        """`offset`: the number of the first environment among all environments that share the seed.

        Raises:
            SettingsError: the seed is not a whole number that torch's generators accept.
        """
        if first is not None:
            checked_seed(first)
        self.first, self._pending, self.offset = first, first is not None, offset

    def first_pending(self) -> int | None:
        """The seed with which the environments were made, at the first call; None at later calls."""
        seed = self.first if self._pending else None
        self._pending = False
        return seed

    def of(self, seed: int | None, count: int) -> list[int | None]:
        pending = self.first_pending()
        seed = pending if seed is None else seed
        return [None if seed is None else seed_of(seed, self.offset + i) for i in range(count)]


class ResetOptions:
    """The options that the environments get at their next reset, one mapping for each. They are used once."""

    def __init__(self) -> None:
        self._pending: list[Options] = []

    def set(self, options: object, count: int) -> None:
        """Keep a copy of `options`: a mapping for all `count` environments, a list with one for each, or None for none.

        Raises:
            SettingsError: it is something else, or a list of another length.
        """
        each = [options] * count if options is None or isinstance(options, Mapping) else options
        if not isinstance(each, list | tuple) or not all(own is None or isinstance(own, Mapping) for own in each):
            raise SettingsError(f"options are {shown(options)}; give a dict, a list of {count} dicts, or None")
        if len(each) != count:
            raise SettingsError(f"there are {len(each)} options for {count} environments; give one dict, or {count}")
        self._pending = [dict(deepcopy(own)) if own else None for own in each] if any(each) else []

    def take(self) -> list[Options]:
        """The options of each environment, once; empty if there are none."""
        pending, self._pending = self._pending, []
        return pending
