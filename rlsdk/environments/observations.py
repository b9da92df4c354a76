"""numpy observations of any space to tensors, checked; one observation or a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlsdk.errors import ObservationError
from rlsdk.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, dtype_of, shape_of


class Stacker:
    """Turns B observations of a space into one tensor [B, ...] per leaf, in the dtype the space is stored in.

    What it needs to know of the space is looked up once; stacking happens at every environment step.
    """

    def __init__(self, space: Space, path: str = "observation") -> None:
        self.space, self.path = space, path
        self.children: dict[Any, Stacker] = {}
        if isinstance(space, Dict):
            self.children = {key: Stacker(child, f"{path}[{key!r}]") for key, child in space.spaces.items()}
        elif isinstance(space, Tuple):
            self.children = {i: Stacker(child, f"{path}[{i}]") for i, child in enumerate(space.spaces)}
        else:
            self.shape, self.dtype = shape_of(space), np.dtype(dtype_of(space))
            self.bounds = _integer_bounds(space)

    def __call__(self, values: Sequence[Any]) -> Any:
        """The tensors; fresh ones, so that environments may reuse their own arrays.

        Raises:
            ObservationError: names the leaf and the row that has a wrong shape or kind, or is not finite.
        """
        if isinstance(self.space, Dict):
            _require_keys(self.space, values, self.path)
            return {key: child([value[key] for value in values]) for key, child in self.children.items()}
        if isinstance(self.space, Tuple):
            return tuple(child([value[i] for value in values]) for i, child in self.children.items())
        try:
            array = np.asarray(values)
        except ValueError:
            array = np.empty(0)
        if array.shape != (len(values), *self.shape) or array.dtype.kind not in "biuf":
            _explain_shape(self.space, values, self.path)
        self._check(array)
        return torch.from_numpy(array.astype(self.dtype, copy=True))

    def _check(self, array: Any) -> None:
        if array.dtype.kind == "f":
            # a finite sum proves that all are finite; a sum that is not may only have overflowed
            if not math.isfinite(array.sum()) and not np.isfinite(array).all():
                row = int(np.argwhere(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0, 0])
                raise ObservationError(f"{self.path} of environment {row} holds NaN or infinity: {array[row]}")
            if self.dtype.kind != "f":
                wrong = f"{self.path} has dtype {array.dtype}, but its space says {self.dtype}"
                raise ObservationError(f"{wrong}; cast it in the environment")
        if self.bounds is not None:
            low, high = self.bounds
            if (array < low).any() or (array > high).any():
                raise ObservationError(f"{self.path} = {array.tolist()} is outside its space {self.space}")


def stack(space: Space, values: Sequence[Any]) -> Any:
    """`Stacker(space)(values)`, for occasional use."""
    return Stacker(space)(values)


def _integer_bounds(space: Space) -> tuple[Any, Any] | None:
    """Smallest and largest value of a discrete leaf; None for others."""
    if not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return None
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiBinary):
        return 0, 1
    start = np.asarray(space.start)
    return start, start + np.asarray(space.nvec) - 1


def _require_keys(space: Dict, values: Sequence[Any], path: str) -> None:
    for row, value in enumerate(values):
        if not isinstance(value, Mapping) or not set(space.spaces) <= set(value):
            got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise ObservationError(f"{path} of environment {row} needs the keys {sorted(space.spaces)}, got {got}")


def _explain_shape(space: Space, values: Sequence[Any], path: str) -> None:
    wanted = shape_of(space)
    for row, value in enumerate(values):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ObservationError(f"{path} of environment {row} is {value!r}, not numbers of shape {wanted}")
        if array.shape != wanted:
            raise ObservationError(f"{path} of environment {row} has shape {array.shape}, but its space says {wanted}")
    raise ObservationError(f"{path}: the rows cannot be stacked into {wanted}")


def batch_of(space: Space, observation: Any, path: str = "observation") -> tuple[list[Any], bool]:
    """(rows, whether `observation` was a single one). A batch has one more leading dimension, in every leaf.

    Raises:
        ObservationError: neither one observation nor a batch of them.
    """
    count = _batch_size(space, observation, path)
    if count is None:
        return [observation], True
    return [_row(space, observation, i) for i in range(count)], False


def _batch_size(space: Space, value: Any, path: str) -> int | None:
    if isinstance(space, Dict):
        _require_keys(space, [value], path)
        sizes = {_batch_size(child, value[key], f"{path}[{key!r}]") for key, child in space.spaces.items()}
    elif isinstance(space, Tuple):
        sizes = {_batch_size(child, value[i], f"{path}[{i}]") for i, child in enumerate(space.spaces)}
    else:
        shape, wanted = np.shape(value), shape_of(space)
        if shape == wanted:
            return None
        if shape[1:] != wanted or len(shape) != len(wanted) + 1:
            batch = ", ".join(("n", *map(str, wanted)))
            raise ObservationError(
                f"{path} has shape {shape}; accepted: {wanted} for one observation, ({batch}) for n of them"
            )
        return int(shape[0])
    if len(sizes) != 1:
        raise ObservationError(f"{path}: its parts disagree about how many observations there are: {sizes}")
    return sizes.pop()


def _row(space: Space, value: Any, index: int) -> Any:
    if isinstance(space, Dict):
        return {key: _row(child, value[key], index) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_row(child, value[i], index) for i, child in enumerate(space.spaces))
    return value[index]
