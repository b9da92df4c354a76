"""The record of one episode, and a check that its arrays fit the spaces of an environment."""

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
    """One episode of T steps as the environment returned it, before any preprocessing."""

    observations: Features  # [T + 1, ..], nested like the observation space
    actions: Features  # [T, ..], nested like the action space, in its units
    rewards: Tensor  # float32 [T]
    terminated: bool
    """Whether the last step terminated the episode; otherwise the episode was truncated there."""
    action_masks: Tensor | None = None  # bool [T + 1, A]
    seed: int | None = None
    """The seed with which the environment was reset for this episode; None: there was none, or it is unknown."""


def checked_episode(spaces: tuple[Space, Space], episode: RecordedEpisode, where: str) -> RecordedEpisode:
    """The episode with its fields as tensors in the dtypes of `spaces` (of observations, of actions).

    The fields of `episode` may be arrays or lists. Box actions outside their bounds are clipped.

    Raises:
        ObservationError: a field does not fit the spaces or the other fields; the message begins with `where`.
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
    """`value` as an array; raises ObservationError if it is not an array of numbers."""
    try:
        array = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:  # for example rows of different lengths
        raise ObservationError(f"{where}: {error}; give an array of numbers with one row for each step") from None
    if array.dtype.kind not in "biuf":
        raise ObservationError(f"{where}: values of type {array.dtype}, expected numbers")
    return array


def _leaves(space: Space, values: Features, rows: tuple[int, str], where: str) -> Features:
    """Arrays [rows, ..] as tensors in the dtypes of the space, nested like it. `rows`: (number, text for error messages)."""

    def convert(path: str, leaf: Space, value: object) -> Tensor:
        """The value of a leaf as a tensor [rows, *shape]."""
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
    """The actions [T, ..], clipped into the Boxes of their space as environments do; warns if an action was outside."""

    def clip(_: str, leaf: Space, rows: Tensor) -> Tensor:
        """The actions of a leaf [T, *shape]; those of a Box are clipped."""
        if not isinstance(leaf, Box):
            return rows
        inside = torch.minimum(torch.maximum(rows, torch.as_tensor(leaf.low)), torch.as_tensor(leaf.high))
        if not torch.allclose(inside.double(), rows.double()):
            warnings.warn(OUTSIDE, stacklevel=2)
        return inside

    return map_leaves(space, clip, actions)


def _converted(array: Array, dtype: str, where: str) -> Tensor:
    """An array [rows, *shape] as a tensor in the dtype of its space.

    Values that the cast would change raise an ObservationError: images with values from 0 to 1, for example, would be black in
    uint8.
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
