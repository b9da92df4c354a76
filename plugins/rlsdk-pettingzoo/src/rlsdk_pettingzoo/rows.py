"""The arrays of one step of all agents: a row for each. Rows of agents that are not alive hold a neutral observation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments import rows_of, to_gymnasium
from rlsdk.errors import DivergenceError, EnvironmentFault, UsageError, shown
from rlsdk.records import EnvStep, Episode, Features, Observation
from rlsdk.spaces import Box, Discrete, MultiDiscrete, Space, choices_of, dtype_of, map_leaves, shape_of

Array = NDArray[Any]
Arrays = Any
"""Arrays [.., ] nested as a space: one array, or a dict or tuple of arrays."""


def neutral(space: Space) -> Arrays:
    """The observation [..] of an agent that is not alive: zeros, or the nearest value that the space allows."""

    def leaf(_: str, own: Space) -> Array:
        dtype, shape = dtype_of(own), shape_of(own)
        if isinstance(own, Box):
            return np.broadcast_to(np.clip(0, own.low, own.high), shape).astype(dtype)
        return np.full(shape, own.start if isinstance(own, Discrete | MultiDiscrete) else 0, dtype)

    return map_leaves(space, leaf)


def actions_of(space: Space, action: Features, count: int) -> list[object]:
    """The actions of `count` rows as PettingZoo takes them, from tensors [B, ..]; those of a float Box are clipped.

    Raises:
        DivergenceError: an action is not finite. UsageError: there are more or fewer actions.
    """

    def leaf(_: str, own: Space, value: torch.Tensor) -> Array:
        if len(value) != count:
            raise UsageError(f"step takes an action for each of {count} rows, got {len(value)}")
        array = value.numpy(force=True).reshape(count, *shape_of(own))
        if not isinstance(own, Box):
            return array
        if not np.isfinite(array).all():
            raise DivergenceError("the policy chose an action that is not finite; its weights have diverged")
        clipped = array if np.dtype(own.dtype).kind != "f" else np.clip(array, own.low, own.high)
        return clipped.astype(own.dtype)

    arrays = map_leaves(space, leaf, action, path="action")
    return [rows_of(arrays, row) for row in range(count)]


class Rows:
    """The records of one step or reset, filled row by row."""

    def __init__(self, spaces: tuple[Space, Space], count: int, *, has_masks: bool) -> None:
        self.space, self.count = spaces[0], count
        size = sum(choices_of(spaces[1]))
        template = neutral(self.space)
        self.features: Arrays = map_leaves(
            self.space, lambda _, __, value: np.broadcast_to(value, (count, *value.shape)).copy(), template
        )
        self.mask = np.ones((count, size), np.bool_) if has_masks else None
        self.is_first = np.ones(count, np.bool_)
        self.reward = np.zeros(count, np.float32)
        self.terminated, self.truncated, self.valid = (np.zeros(count, np.bool_) for _ in range(3))
        self.final: list[tuple[Arrays, NDArray[np.bool_] | None]] = []
        """(last observation, its mask) of each episode that ended, in the order of the rows."""
        self.episodes: list[Episode] = []
        self.infos: list[Mapping[str, object]] = [{} for _ in range(count)]

    def write(self, row: int, seen: object, mask: NDArray[np.bool_] | None, *, is_first: bool, where: str) -> None:
        """Write what the agent of a row sees. `where` begins messages. Raises EnvironmentFault as `checked`."""
        checked = observation_of(self.space, seen, where)
        map_leaves(self.space, lambda _, __, target, value: target.__setitem__(row, value), self.features, checked)
        self.is_first[row] = is_first
        if self.mask is not None and mask is not None:
            self.mask[row] = mask

    def observation(self) -> Observation:
        """The observations [B, ..] as tensors."""
        features = map_leaves(self.space, lambda _, __, value: torch.from_numpy(value), self.features)
        mask = None if self.mask is None else torch.from_numpy(self.mask)
        return Observation(features, torch.from_numpy(self.is_first), mask)

    def step(self, info: Mapping[str, torch.Tensor], *, with_infos: bool) -> EnvStep:
        """The record of the step. `info`: its declared entries, float32 [B] each."""
        infos = [dict(each) for each in self.infos] if with_infos else None
        return EnvStep(
            self.observation(),
            torch.from_numpy(self.reward),
            torch.from_numpy(self.terminated),
            torch.from_numpy(self.truncated),
            torch.from_numpy(self.valid),
            self._final() if self.final else None,
            tuple(self.episodes),
            infos,
            info=info,
        )

    def _final(self) -> Observation:
        rows = [seen for seen, _ in self.final]
        features = map_leaves(self.space, lambda _, __, *leaves: torch.from_numpy(np.stack(leaves)), *rows)
        masks = [own for _, own in self.final if own is not None]
        mask = torch.from_numpy(np.stack(masks)) if masks else None
        return Observation(features, torch.zeros(len(rows), dtype=torch.bool), mask)


def observation_of(space: Space, seen: object, where: str) -> Arrays:
    """An observation as arrays [..] in the dtypes of rlsdk, nested as the space.

    Raises:
        EnvironmentFault: it does not have the shapes of the space, or is not finite. The message begins with `where`.
    """

    def leaf(path: str, own: Space, value: object) -> Array:
        array, shape = np.asarray(value), shape_of(own)
        if array.shape != shape or array.dtype.kind not in "biuf":
            got = f"has shape {array.shape}" if array.dtype.kind in "biuf" else f"is {shown(value, 100)}"
            raise EnvironmentFault(f"{where}: {path} {got}, but its space is {own}")
        if not np.isfinite(array).all():
            raise EnvironmentFault(f"{where}: {path} holds NaN or infinity")
        stored = array.astype(dtype_of(own))
        if not isinstance(own, Box) and not to_gymnasium(own).contains(stored):
            raise EnvironmentFault(f"{where}: {path} is {shown(value, 100)}, outside its space {own}")
        return stored

    try:
        return map_leaves(space, leaf, seen)
    except (KeyError, IndexError, TypeError):
        raise EnvironmentFault(f"{where}: the observation is {shown(seen, 100)}, not nested as {space}") from None


def digest_of(parts: Iterable[tuple[str, Arrays]]) -> str:
    """A short text for texts and nested arrays, which differs where they differ in a bit."""
    digest = hashlib.sha256()

    def add(value: Arrays) -> None:
        if isinstance(value, Mapping):
            value = tuple(value.values())
        for part in value if isinstance(value, tuple) else ():
            add(part)
        if not isinstance(value, tuple):
            digest.update(np.ascontiguousarray(value).tobytes())

    for text, arrays in parts:
        digest.update(text.encode())
        add(arrays)
    return digest.hexdigest()
