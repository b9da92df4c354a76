"""Conversion of numpy observations of any space to tensors, with checks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlsdk.environments.adapters.nested import Allocate, Array, Arrays, Tensors, parts_of, tensors_of
from rlsdk.environments.adapters.unusable_input import shape_of_value, without_record
from rlsdk.errors import ObservationError
from rlsdk.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, dtype_of, shape_of


class ObservationBatcher:
    """Stacks B observations of a space to one array or tensor [B, ...] per leaf, in the dtype of rlsdk for this space.

    Properties of the space are looked up once, because the batcher is used at every environment step. Rows are written one by
    one and checked together.
    """

    def __init__(self, space: Space, path: str = "observation", first: int = 0) -> None:
        """`first`: the number of the environment in row 0, for messages."""
        self.space, self.path, self.first = space, path, first
        self.children = {key: ObservationBatcher(child, f"{path}[{key!r}]", first) for key, child in parts_of(space)}
        if self.children:
            return
        self.shape, self.dtype = shape_of(space), np.dtype(dtype_of(space))
        self.is_float, self.bounds = self.dtype.kind == "f", _integer_bounds(space)

    @property
    def plain(self) -> tuple[tuple[int, ...] | None, np.dtype[np.generic] | None]:
        """(shape, dtype) of an observation that needs no conversion; (None, None) if the space has parts."""
        return (None, None) if self.children else (self.shape, self.dtype)

    @property
    def copied(self) -> tuple[np.dtype[np.generic], ...]:
        """The usual dtypes of observations that are copied without a check of each number; empty if the space has parts."""
        if self.children:
            return ()
        return (self.dtype, np.dtype(np.float64)) if self.is_float else (self.dtype,)

    def __call__(self, values: Sequence[object]) -> Tensors:
        """The observations as new tensors [B, ..], so that environments may reuse their own arrays.

        Raises:
            ObservationError: an observation has a wrong shape or kind, or is not finite; the message names leaf and row.
        """
        return tensors_of(self.arrays(values))

    def arrays(self, values: Sequence[object]) -> Arrays:
        """The observations as new numpy arrays [B, ..]. Raises ObservationError as a call of the batcher."""
        target = self.allocate(len(values))
        for row, value in enumerate(values):
            self.write(target, row, value)
        self.check(target)
        return target

    def of_batch(self, value: object, count: int) -> Tensors:
        """The tensors of `count` observations that are already stacked in arrays [count, ..], nested as the space.

        Raises:
            ObservationError: as a call of the batcher.
        """
        found = self._whole(value, count)
        if found is None:
            rows, alone = batch_of(self.space, value, self.path)
            if alone or len(rows) != count:
                one = "a single observation" if alone else f"{len(rows)} observations"
                raise ObservationError(f"{self.path} is {one}, not {count}; stack them on the first axis")
            return self(rows)
        self.check(found)
        return tensors_of(found)

    def _whole(self, value: Any, count: int) -> Arrays | None:
        """A copy of stacked observations; None if they must be converted row by row, which is much slower."""
        if not self.children:
            fits = type(value) is np.ndarray and value.shape == (count, *self.shape) and self._keeps(value.dtype)
            return np.array(value, self.dtype) if fits else None
        try:
            parts = {key: child._whole(value[key], count) for key, child in self.children.items()}
        except (KeyError, IndexError, TypeError):
            return None
        whole = {key: part for key, part in parts.items() if part is not None}
        if len(whole) < len(parts):
            return None
        if isinstance(self.space, Tuple):
            return tuple(whole.values())
        return {str(key): part for key, part in whole.items()}

    def _keeps(self, dtype: np.dtype[np.generic]) -> bool:
        """Whether numbers of `dtype` can be copied without a check of each number."""
        return dtype == self.dtype or (self.is_float and dtype.kind == "f")

    def allocate(self, rows: int, make: Allocate = np.empty) -> Arrays:
        """New arrays [rows, ..] for `rows` observations, nested as the space."""
        if isinstance(self.space, Tuple):
            return tuple(child.allocate(rows, make) for child in self.children.values())
        if self.children:
            return {str(key): child.allocate(rows, make) for key, child in self.children.items()}
        return make((rows, *self.shape), self.dtype)

    def write(self, target: Arrays, row: int, value: Any) -> None:
        """Copy one observation into row `row` of arrays from `allocate`.

        Raises:
            ObservationError: the observation has a wrong shape, key or kind.
        """
        if not isinstance(target, np.ndarray):
            try:
                for (key, child), part in zip(self.children.items(), _values(target), strict=True):
                    child.write(part, row, value[key])
            except (KeyError, IndexError, TypeError):
                _explain_parts(self.space, value, self.first + row, self.path)
        elif (
            type(value) is np.ndarray
            and value.shape == self.shape
            and (value.dtype == self.dtype or (self.is_float and value.dtype.kind == "f"))  # `_keeps`, but faster
        ):
            target[row] = value
        else:
            target[row] = self._converted(value, row)

    def _converted(self, value: object, row: int) -> Array:
        """`value` as an array of the leaf's shape and dtype. Conversions that change integers raise ObservationError."""
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)
        where = f"{self.path} of environment {self.first + row}"
        if array.dtype.kind not in "biuf":
            raise ObservationError(f"{where} is {value!r}, not numbers of shape {self.shape}")
        if array.shape != self.shape:
            raise ObservationError(f"{where} has shape {array.shape}, but its space has {self.shape}")
        if self.is_float:
            return array
        if array.dtype.kind == "f":
            wrong = f"{where} has dtype {array.dtype}, but its space has {self.dtype}"
            raise ObservationError(f"{wrong}; cast it in the environment")
        stored = array.astype(self.dtype)
        if not np.array_equal(stored, array):
            raise ObservationError(f"{where} holds values outside {self.dtype}, the dtype of its space: {array}")
        return stored

    def check(self, target: Arrays) -> None:
        """Check that all rows are finite and that discrete values are inside the space.

        Raises:
            ObservationError: a row is invalid; the message names the leaf.
        """
        if not isinstance(target, np.ndarray):
            for child, part in zip(self.children.values(), _values(target), strict=True):
                child.check(part)
            return
        # if the sum of squares is finite, all numbers are; if it is not, it may only have overflowed
        if self.is_float and not math.isfinite(np.vdot(target, target)) and not np.isfinite(target).all():
            row = int(np.argwhere(~np.isfinite(target).reshape(len(target), -1).all(axis=1))[0, 0])
            raise ObservationError(
                f"{self.path} of environment {self.first + row} holds NaN or infinity: {target[row]}"
            )
        if self.bounds is not None:
            low, high = self.bounds
            if np.less(target, low).any() or np.greater(target, high).any():
                raise ObservationError(f"{self.path} = {target.tolist()} is outside its space {self.space}")

    def outside(self, target: Arrays) -> tuple[str, int] | None:
        """(leaf, row) of the first float observation outside the bounds of its space; None if all are inside."""
        if not isinstance(target, np.ndarray):
            pairs = zip(self.children.values(), _values(target), strict=True)
            return next((found for child, part in pairs if (found := child.outside(part)) is not None), None)
        if not isinstance(self.space, Box) or not self.is_float:
            return None
        beyond = np.less(target, self.space.low) | np.greater(target, self.space.high)
        return (self.path, int(np.argwhere(beyond)[0, 0])) if beyond.any() else None


def _values(arrays: dict[str, Arrays] | tuple[Arrays, ...]) -> Collection[Arrays]:
    return arrays.values() if isinstance(arrays, dict) else arrays


def stack(space: Space, values: Sequence[object]) -> Tensors:
    """Stack observations to tensors: `ObservationBatcher(space)(values)`, for code that is called rarely."""
    return ObservationBatcher(space)(values)


def _integer_bounds(space: Space) -> tuple[ArrayLike, ArrayLike] | None:
    """(smallest, largest) value of a discrete leaf; None for other leaves."""
    if not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return None
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiBinary):
        return 0, 1
    start = np.asarray(space.start)
    return start, start + np.asarray(space.nvec) - 1


def _explain_parts(space: Space, value: object, row: int, path: str) -> None:
    if isinstance(space, Dict):
        _require_keys(space, value, row, path)
    wanted = len(space.spaces) if isinstance(space, Tuple) else "a table"
    raise ObservationError(f"{path} of environment {row} is {value!r}; its space has {wanted} parts")


def _require_keys(space: Dict, value: object, row: int, path: str) -> None:
    if not isinstance(value, Mapping) or not set(space.spaces) <= set(value):
        got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise ObservationError(f"{path} of environment {row} needs the keys {sorted(space.spaces)}, got {got}")


def batch_of(space: Space, observation: object, path: str = "observation") -> tuple[list[object], bool]:
    """(list of observations, whether `observation` is a single one). In a batch, every leaf has one more leading dimension.

    Raises:
        ObservationError: `observation` is neither an observation nor a batch of observations.
    """
    count = _batch_size(space, without_record(observation, path), path)
    if count is None:
        return [observation], True
    return [_row(space, observation, i) for i in range(count)], False


def _batch_size(space: Space, value: Any, path: str) -> int | None:
    if isinstance(space, Dict):
        _require_keys(space, value, 0, path)
    if parts := parts_of(space):
        sizes = {_batch_size(child, value[key], f"{path}[{key!r}]") for key, child in parts}
    else:
        shape, wanted = shape_of_value(value, path), shape_of(space)
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


def _row(space: Space, value: Any, index: int) -> object:
    if isinstance(space, Dict):
        return {key: _row(child, value[key], index) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_row(child, value[i], index) for i, child in enumerate(space.spaces))
    return value[index]
