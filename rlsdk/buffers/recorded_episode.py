"""One recorded episode, and whether its arrays are what an environment with some spaces could have given."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import ObservationError
from rlsdk.interfaces.require_inside import require_inside
from rlsdk.records import Features
from rlsdk.spaces import Box, Space, choices_of, dtype_of, map_leaves, shape_of

Array = np.ndarray[Any, Any]
MAX_SEED = 2**63 - 1
OUTSIDE = "recorded actions outside the Box of their space are clipped into it, as environments clip them"
FINAL = ": one row more than there are steps, the last is what the last step led to"


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpisode:
    """One episode of T steps, raw: as the environment gave it, before any preprocessing."""

    observations: Features  # [T + 1, ..], nested as the observation space
    actions: Features  # [T, ..], nested as the action space, in its units
    rewards: Tensor  # float32 [T]
    terminated: bool
    """Whether the last step ended the task; otherwise it was cut off there (`truncated`)."""
    action_masks: Tensor | None = None  # bool [T + 1, A]
    seed: int | None = None
    """What the environment was reset with for this episode; None: it continued from the one before, or it is not known."""


def checked_episode(spaces: tuple[Space, Space], episode: RecordedEpisode, where: str) -> RecordedEpisode:
    """`episode`, whose fields may be arrays or lists, as tensors in the dtypes of `spaces` (of observations, of actions).
    Box actions outside their bounds are clipped into them.

    Raises:
        ObservationError: it does not fit the spaces or itself; the message begins with `where`.
    """
    rewards = _numbers(episode.rewards, f"{where}, rewards").astype(np.float32)
    if rewards.ndim != 1 or not len(rewards) or not np.isfinite(rewards).all():
        raise ObservationError(
            f"{where}: rewards of shape {rewards.shape} must be finite numbers, one for each step, and at least one"
        )
    steps = len(rewards)
    return RecordedEpisode(
        _leaves(spaces[0], episode.observations, (steps + 1, FINAL), f"{where}, observations"),
        _clipped(spaces[1], _leaves(spaces[1], episode.actions, (steps, ""), f"{where}, actions")),
        torch.from_numpy(rewards),
        _ended(episode.terminated, where),
        _masks(spaces[1], episode.action_masks, steps, where),
        _seed(episode.seed, where),
    )


def _numbers(value: object, where: str) -> Array:
    """An array of numbers; raises ObservationError for anything else."""
    try:
        array = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:  # rows of different lengths, among others
        raise ObservationError(f"{where}: {error}; give an array of numbers with one row for each step") from None
    if array.dtype.kind not in "biuf":
        raise ObservationError(f"{where}: values of type {array.dtype}, expected numbers")
    return array


def _leaves(space: Space, values: Features, rows: tuple[int, str], where: str) -> Features:
    """Arrays [rows, ..] as tensors in the dtypes of the space, nested as it is. `rows`: how many, and a text about them."""

    def convert(path: str, leaf: Space, value: object) -> Tensor:
        """[rows, *shape]."""
        if isinstance(value, dict | tuple):
            raise TypeError(f"{type(value).__name__} at {path}")
        array = _numbers(value, path)
        if array.shape != (wanted := (rows[0], *shape_of(leaf))):
            raise ObservationError(f"{path}: an array of shape {array.shape}, expected {wanted}{rows[1]}")
        converted = _converted(array, dtype_of(leaf), path)
        try:
            require_inside(leaf, converted, path)
        except ValueError as error:
            raise ObservationError(f"{error}; give the space that the episodes were recorded with") from None
        return converted

    try:
        return map_leaves(space, convert, values, path=where)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ObservationError(f"{where} are not nested as the space {space}: {error}") from None


def _clipped(space: Space, actions: Features) -> Features:
    """Actions [T, ..] inside the Boxes of their space: what environments do with others. A warning reports such actions."""

    def clip(_: str, leaf: Space, rows: Tensor) -> Tensor:
        """[T, *shape]."""
        if not isinstance(leaf, Box):
            return rows
        inside = torch.minimum(torch.maximum(rows, torch.as_tensor(leaf.low)), torch.as_tensor(leaf.high))
        if not torch.allclose(inside.double(), rows.double()):
            warnings.warn(OUTSIDE, stacklevel=2)
        return inside

    return map_leaves(space, clip, actions)


def _converted(array: Array, dtype: str, where: str) -> Tensor:
    """An array [rows, *shape] in the dtype of its space.

    A cast changes fractions, and numbers out of range, without a word: pictures from 0 to 1 would all be black in uint8.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ObservationError(f"{where}: not all numbers are finite")
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype)
    if converted.dtype.kind == "f":
        changed = array.dtype.kind == "f" and not np.isfinite(converted).all()
    else:
        changed = array.dtype != converted.dtype and not np.array_equal(converted, array)
    if changed:
        raise ObservationError(
            f"{where}: numbers of type {array.dtype} from {array.min()} to {array.max()} do not fit the space's {dtype};"
            " scale or round them, or give the space that they were recorded with"
        )
    return torch.from_numpy(converted)


def _ended(terminated: object, where: str) -> bool:
    if not isinstance(terminated, bool | np.bool_):
        raise ObservationError(
            f"{where}: terminated = {terminated!r} must be True or False: whether the last step ended the task"
        )
    return bool(terminated)


def _masks(space: Space, masks: object, steps: int, where: str) -> Tensor | None:
    """Action masks as bool [T + 1, A]."""
    if masks is None:
        return None
    found, wanted = _numbers(masks, f"{where}, action masks"), (steps + 1, sum(choices_of(space)))
    if found.shape != wanted:
        raise ObservationError(
            f"{where}: action masks of shape {found.shape}, expected {wanted}: one row for each observation, one entry for"
            " each choice"
        )
    return torch.from_numpy(found.astype(bool))


def _seed(seed: object, where: str) -> int | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MAX_SEED:
        raise ObservationError(f"{where}: seed = {seed!r} must be a whole number from 0 to {MAX_SEED}, or None")
    return int(seed)
