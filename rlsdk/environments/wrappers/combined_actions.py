"""A wrapper that turns a MultiDiscrete action into one Discrete action, so that masks can forbid combinations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import named
from rlsdk.environments.adapters.masks import INFO, METHOD
from rlsdk.errors import MaskError, SettingsError, UnsupportedSpaceError

Info = dict[str, Any]
MOST = 1_000_000
"""The largest number of combinations. The policy has an output, and the mask an entry, for each combination."""


class CombinedActions(gymnasium.ActionWrapper[object, object, object], RecordConstructorArgs):
    """Makes every combination of the parts of a MultiDiscrete or MultiBinary action a value of one Discrete action.

    The last part changes fastest. Masks can then depend on several parts. The environment gives a mask with one axis per part,
    bool [n_1, .., n_K]: entry [a_1, .., a_K] is True where that combination is allowed. The masks of the parts, concatenated,
    bool [n_1 + .. + n_K], are accepted as well.
    """

    def __init__(self, env: gymnasium.Env[object, object]) -> None:
        """Raises UnsupportedSpaceError for other action spaces, and SettingsError for more than `MOST` combinations."""
        RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        self._parts = _parts(env)
        sizes = tuple(int(n) for n in self._parts.nvec.flatten())
        if prod(sizes) > MOST:
            raise SettingsError(
                f"the actions of {named(env)} have {prod(sizes)} combinations; CombinedActions takes at most {MOST}; leave it"
                " out and mask each part, or choose the parts one after the other in several steps"
            )
        self._sizes = sizes
        self.action_space = Discrete(prod(sizes))

    def action(self, action: object) -> NDArray[Any]:
        """The MultiDiscrete or MultiBinary action for the number of a combination."""
        found = np.unravel_index(int(np.asarray(action)), self._sizes)
        parts = np.asarray(found, self._parts.dtype).reshape(self._parts.nvec.shape) + self._parts.start
        return parts.astype(self.env.action_space.dtype)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._combined(info)

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(self.action(action))
        return observation, reward, terminated, truncated, self._combined(info)

    def _combined(self, info: Info) -> Info:
        return {**info, INFO: self._of_combinations(info[INFO])} if INFO in info else info

    @property
    def action_masks(self) -> Callable[[], NDArray[np.bool_]]:
        """A function that returns the mask, bool [combinations], True where a combination is allowed.

        Raises:
            AttributeError: the environment has no masks.
        """
        masks = self.env.get_wrapper_attr(METHOD)
        return lambda: self._of_combinations(masks())

    def _of_combinations(self, mask: object) -> NDArray[np.bool_]:
        """The mask of the environment as a mask of combinations, bool [combinations].

        Raises:
            MaskError: the mask has another shape, or values that are neither true nor false.
        """
        try:
            given = np.asarray(mask)
        except ValueError:  # rows of different lengths
            given = np.empty(0)
        if given.dtype != np.bool_ and (given.dtype.kind not in "iuf" or not np.isin(given, (0, 1)).all()):
            raise MaskError("an action mask holds other values than true and false, or 1 and 0")
        given = given.astype(np.bool_)
        if given.shape == (sum(self._sizes),):
            allowed = np.ones((), np.bool_)
            for part in np.split(given, np.cumsum(self._sizes[:-1])):
                allowed = np.logical_and.outer(allowed, part)
            return allowed.flatten()
        if given.shape != self._sizes:
            raise MaskError(
                f"an action mask has shape {given.shape}; CombinedActions needs {self._sizes}, or ({sum(self._sizes)},) for a"
                " mask of each part"
            )
        return given.flatten()


def _parts(env: gymnasium.Env[object, object]) -> MultiDiscrete:
    space = env.action_space
    if isinstance(space, MultiDiscrete):
        return space
    if isinstance(space, MultiBinary):
        return MultiDiscrete(np.full(space.shape, 2), dtype=np.int64)
    raise UnsupportedSpaceError(
        f"CombinedActions combines the parts of MultiDiscrete and MultiBinary actions; {named(env)} has {space}"
    )
