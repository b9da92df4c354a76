"""Identity environments in which some actions are forbidden at each step; `action_masks()` returns which are allowed."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.environments.toy.identity import IdentityTask, bits, number, pair
from rlsdk.errors import SettingsError


def _require(invalid: int, choices: int) -> None:
    if not 0 <= invalid < choices:
        raise SettingsError(
            f"n_invalid_actions = {invalid} must be from 0 to {choices - 1}: the right action stays allowed"
        )


def _mask(size: int, invalid: int, right: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """bool [size], True where allowed: `invalid` random ones are not, `right` always is."""
    allowed = np.ones(size, dtype=bool)
    others = np.delete(np.arange(size), right)
    allowed[generator.choice(others, invalid, replace=False)] = False
    return allowed


class InvalidActionEnvDiscrete(IdentityTask):
    """`n_invalid_actions` of the `dim` actions are forbidden, other ones at every step, never the right one."""

    def __init__(self, dim: int = 20, n_invalid_actions: int = 10, episode_length: int = 100) -> None:
        _require(n_invalid_actions, dim)
        super().__init__(spaces.Discrete(dim), episode_length)
        self.dim, self.n_invalid_actions = dim, n_invalid_actions
        self._allowed = np.ones(dim, dtype=bool)

    def draw(self) -> object:
        target = number(self.np_random, self.dim)
        self._allowed = _mask(self.dim, self.n_invalid_actions, target, self.np_random)
        return target

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [dim], True where the action is allowed."""
        return self._allowed.copy()


class InvalidActionEnvMultiDiscrete(IdentityTask):
    """The same for two discrete values: `n_invalid_actions` choices are forbidden in all, of either value."""

    def __init__(self, dim: int = 20, n_invalid_actions: int = 10, episode_length: int = 100) -> None:
        _require(n_invalid_actions, 2 * dim - 1)
        super().__init__(spaces.MultiDiscrete([dim, dim]), episode_length)
        self.dim, self.n_invalid_actions = dim, n_invalid_actions
        self._allowed = np.ones(2 * dim, dtype=bool)

    def draw(self) -> object:
        target = pair(self.np_random, self.dim)
        self._allowed = np.ones(2 * self.dim, dtype=bool)
        others = np.setdiff1d(np.arange(2 * self.dim), [target[0], self.dim + target[1]])
        self._allowed[self.np_random.choice(others, self.n_invalid_actions, replace=False)] = False
        return target

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [2 * dim]: the choices of the first value, then those of the second."""
        return self._allowed.copy()


class InvalidActionEnvMultiBinary(IdentityTask):
    """The same for bits: one of the two values of `n_invalid_actions` bits is forbidden, never the right one."""

    def __init__(self, dim: int = 20, n_invalid_actions: int = 10, episode_length: int = 100) -> None:
        _require(n_invalid_actions, dim + 1)
        super().__init__(spaces.MultiBinary(dim), episode_length)
        self.dim, self.n_invalid_actions = dim, n_invalid_actions
        self._allowed = np.ones(2 * dim, dtype=bool)

    def draw(self) -> object:
        target = bits(self.np_random, self.dim)
        self._allowed = np.ones(2 * self.dim, dtype=bool)
        chosen = self.np_random.choice(self.dim, self.n_invalid_actions, replace=False)
        self._allowed[2 * chosen + 1 - target[chosen]] = False
        return target

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [2 * dim]: for each bit whether it may be 0, and whether it may be 1."""
        return self._allowed.copy()
