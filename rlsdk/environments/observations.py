"""numpy observations of any space to tensors, checked; one observation or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlsdk.errors import ObservationError
from rlsdk.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, dtype_of, shape_of


def stack(space: Space, values: Sequence[Any], path: str = "observation") -> Any:
    """One tensor [B, ...] per leaf from B observations, in the dtype the space is stored in.

    Raises:
        ObservationError: names the leaf and the row that has a wrong shape or kind, or is not finite.
    """
    if isinstance(space, Dict):
        _require_keys(space, values, path)
        return {k: stack(child, [v[k] for v in values], f"{path}[{k!r}]") for k, child in space.spaces.items()}
    if isinstance(space, Tuple):
        parts = enumerate(space.spaces)
        return tuple(stack(child, [v[i] for v in values], f"{path}[{i}]") for i, child in parts)
    shape, dtype = (len(values), *shape_of(space)), np.dtype(dtype_of(space))
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0)
    if array.shape != shape or array.dtype.kind not in "biuf":
        _explain_shape(space, values, path)
    return torch.from_numpy(_checked(space, array, dtype, path))


def _checked(space: Space, array: Any, dtype: np.dtype[Any], path: str) -> Any:
    """`array` in the stored dtype; a fresh copy, so that environments may reuse their own arrays."""
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0, 0])
            raise ObservationError(f"{path} of environment {row} holds NaN or infinity: {array[row]}")
        if dtype.kind != "f":
            raise ObservationError(
                f"{path} has dtype {array.dtype}, but its space says {dtype}; cast it in the environment"
            )
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        low, high = _integer_bounds(space)
        if (array < low).any() or (array > high).any():
            raise ObservationError(f"{path} = {array.tolist()} is outside its space {space}")
    return array.astype(dtype, copy=True)


def _integer_bounds(space: Discrete | MultiDiscrete | MultiBinary) -> tuple[Any, Any]:
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
