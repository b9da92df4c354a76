"""Identity tasks in which some actions are forbidden at each step. `action_masks()` returns the allowed ones."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.errors import SettingsError
from rlsdk_envs.toy.identity import IdentityTask, bits, number, pair


def _require(invalid: int, choices: int) -> None:
    if not 0 <= invalid < choices:
        raise SettingsError(
            f"n_invalid_actions = {invalid} must be from 0 to {choices - 1}: the right action stays allowed"
        )


def _mask(size: int, invalid: int, right: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """A mask bool [size], True where an action is allowed. `invalid` random actions are forbidden, but never `right`."""
    allowed = np.ones(size, dtype=bool)
    others = generator.choice(size - 1, invalid, replace=False)
    others += others >= right  # counted without the right action
    allowed[others] = False
    return allowed


class InvalidActionEnvDiscrete(IdentityTask):
    """The identity task in Discrete(dim) with `n_invalid_actions` forbidden actions.

    They are drawn again at every step. The right action is never forbidden.
    """

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
        """The current action mask: bool [dim], True where the action is allowed."""
        return self._allowed.copy()


class InvalidActionEnvMultiDiscrete(IdentityTask):
    """The identity task with two discrete values and `n_invalid_actions` forbidden values, counted over both.

    They are drawn again at every step. The right values are never forbidden.
    """

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
        """The current action mask: bool [2 * dim], the entries of the first value, then those of the second."""
        return self._allowed.copy()


class InvalidActionEnvMultiBinary(IdentityTask):
    """The identity task with `dim` bits. For `n_invalid_actions` random bits, the wrong value is forbidden at each step."""

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
        """The current action mask: bool [2 * dim], two entries per bit: may it be 0, may it be 1."""
        return self._allowed.copy()
