"""Observations and actions between numpy and torch, for any space, with checks."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from torch import Tensor

from rlsdk import spaces
from rlsdk.environments.adapters.checks import Environment, attribute_of, named
from rlsdk.errors import DivergenceError, EnvironmentFault, ObservationError, UnsupportedSpaceError, UsageError, shown
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import MAX_DEPTH, Box, Dict, Space, Tuple, dtype_of, shape_of

T = TypeVar("T")
ScalarT = TypeVar("ScalarT", bound=np.generic)


class ObservationBatcher:
    """Stacks B observations of a space to one array or tensor [B, ...] per leaf, in the dtype of rlsdk for this space.

    Rows are written one by one and checked together.
    """

    def __init__(self, space: Space, path: str = "observation", first: int = 0) -> None:
        """`first`: the number of the environment in row 0, for messages."""
        self.space, self.path, self.first = space, path, first
        self.children = {key: ObservationBatcher(child, f"{path}[{key!r}]", first) for key, child in parts_of(space)}
        if self.children:
            return
        # Looked up once, because the batcher is used at every environment step.
        self.shape, self.dtype = shape_of(space), np.dtype(dtype_of(space))
        self.is_float, self.bounds = self.dtype.kind == "f", spaces.integer_bounds(space)

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
        # New arrays each time, because environments may reuse their own.
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
        found = self._copied_batch(value, count)
        if found is None:
            rows, alone = batch_of(self.space, value, self.path)
            if alone or len(rows) != count:
                one = "a single observation" if alone else f"{len(rows)} observations"
                raise ObservationError(f"{self.path} is {one}, not {count}; stack them on the first axis")
            return self(rows)
        self.check(found)
        return tensors_of(found)

    def _copied_batch(self, value: Any, count: int) -> Arrays | None:
        """A copy of stacked observations; None if they must be converted row by row, which is much slower."""
        # One copy of all rows; a loop over rows takes much longer.
        if not self.children:
            fits = type(value) is np.ndarray and value.shape == (count, *self.shape) and self._fits(value.dtype)
            return np.array(value, self.dtype) if fits else None
        try:
            parts = {key: child._copied_batch(value[key], count) for key, child in self.children.items()}
        except (KeyError, IndexError, TypeError):
            return None
        whole = {key: part for key, part in parts.items() if part is not None}
        if len(whole) < len(parts):
            return None
        if isinstance(self.space, Tuple):
            return tuple(whole.values())
        return {str(key): part for key, part in whole.items()}

    def _fits(self, dtype: np.dtype[np.generic]) -> bool:
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
                # Only after a failure: checking the keys first would take longer than copying the parts.
                _explain_parts(self.space, value, self.first + row, self.path)
        elif (
            type(value) is np.ndarray
            and value.shape == self.shape
            # `_fits`, without a call of it: this runs for each environment in every step
            and (value.dtype == self.dtype or (self.is_float and value.dtype.kind == "f"))
        ):
            target[row] = value
        else:
            target[row] = self._convert(value, row)

    def _convert(self, value: object, row: int) -> Array:
        """`value` as an array of the leaf's shape and dtype. Conversions that change integers raise ObservationError."""
        try:
            array = np.asarray(value)
        except ValueError:
            # Lists of different lengths; the kind of dtype leads to the message below.
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


ActionRows: TypeAlias = "Array | list[object]"
"""One action per environment: an array [B, ..], or B dicts or tuples."""


class ActionDecoder:
    """Converts actions [B, ...] in environment units to numpy arrays in the dtype of the space.

    Actions of a float Box are clipped to its bounds.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts = {key: ActionDecoder(child) for key, child in parts_of(space)}
        self.rows: Callable[[object], ActionRows] = self._rows if self.parts else self._leaf
        """The same as a call of the decoder, without a further Python call."""
        if self.parts:
            return
        self.shape = shape_of(space)
        self.dtype = np.dtype(space.dtype if isinstance(space, Box) else dtype_of(space))
        self.bounds: tuple[Array, Array] | None = None
        if isinstance(space, Box) and self.dtype.kind == "f":
            # bounds [1, ..] have the shape of a single action, so that it needs no broadcasting
            self.bounds = space.low[None], space.high[None]

    def __call__(self, action: object) -> ActionRows:
        """One action per environment: an array [B, ..], or for nested spaces a list of B dicts or tuples.

        Raises:
            DivergenceError: an action is NaN or infinite. UsageError: the actions are not tensors.
        """
        return self.rows(action)

    def _rows(self, action: object) -> list[object]:
        decoded = {key: part(part_of(action, key, self.space)) for key, part in self.parts.items()}
        rows: list[dict[str | int, object]] = [
            {key: values[i] for key, values in decoded.items()} for i in range(len(next(iter(decoded.values()))))
        ]
        return [row if isinstance(self.space, Dict) else tuple(row.values()) for row in rows]

    def batched(self, action: object) -> Arrays:
        """The actions as arrays [B, ...], nested as the space. gymnasium's vector environments take this form.

        Raises:
            DivergenceError, UsageError: as a call of the decoder.
        """
        if not self.parts:
            return self._leaf(action)
        parts = {str(key): part.batched(part_of(action, key, self.space)) for key, part in self.parts.items()}
        return parts if isinstance(self.space, Dict) else tuple(parts.values())

    def _leaf(self, action: object) -> Array:
        if not isinstance(action, Tensor):
            raise no_tensors(action, "a torch tensor")
        return self.decoded(action.numpy(force=True) if action.requires_grad or not action.is_cpu else action.numpy())

    def decoded(self, array: Array) -> Array:
        """The same for actions in an array [B, ..] of a space that is not nested."""
        if array.shape[1:] != self.shape:
            array = array.reshape(-1, *self.shape)
        if (bounds := self.bounds) is not None:
            # if the sum of squares is finite, all numbers are; if it is not, it may only have overflowed
            if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
                raise not_finite(array)
            # np.clip takes twice as long for the few numbers of a step
            array = np.minimum(np.maximum(array, bounds[0]), bounds[1])
        # without clipping the array is copied, because an environment may write into its action
        return array.astype(self.dtype, copy=bounds is None)


Nested: TypeAlias = "T | dict[str, Nested[T]] | tuple[Nested[T], ...]"
"""One value of a leaf space; a dict or tuple of such values where the space is a Dict or Tuple."""
Array: TypeAlias = "NDArray[np.bool_ | np.integer | np.floating]"
Arrays: TypeAlias = "Nested[Array]"
Tensors: TypeAlias = "Nested[Tensor]"


class Allocate(Protocol):
    """A function that allocates numpy arrays, as `np.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[ScalarT], /) -> NDArray[ScalarT]: ...


def parts_of(space: Space) -> list[tuple[str | int, Space]]:
    """(key or position, space) of each part of a Dict or Tuple; an empty list for a leaf."""
    if isinstance(space, Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, Tuple) else []


def rows_of(arrays: Arrays, rows: slice | list[int] | int) -> Arrays:
    """The selected rows of arrays [B, ..]: views for a slice, copies for a list, one row [..] for a number."""
    if isinstance(arrays, dict):
        return {key: rows_of(value, rows) for key, value in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(rows_of(value, rows) for value in arrays)
    found: Array = arrays[rows]
    return found


def tensors_of(arrays: Arrays, *, fresh: bool = False) -> Tensors:
    """Arrays [..] as tensors [..]. With `fresh=True` they are copies, otherwise they share memory with the arrays."""
    if isinstance(arrays, dict):
        return {key: tensors_of(value, fresh=fresh) for key, value in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(tensors_of(value, fresh=fresh) for value in arrays)
    return torch.from_numpy(arrays.copy() if fresh else arrays)


def concatenated(parts: Sequence[Arrays]) -> Arrays:
    """Arrays [N, ..] with the same nesting, concatenated along the first axis."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: concatenated([part[key] for part in parts if isinstance(part, dict)]) for key in first}
    if isinstance(first, tuple):
        columns = zip(*(part for part in parts if isinstance(part, tuple)), strict=True)
        return tuple(concatenated(column) for column in columns)
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


MISSING = object()
MAX_CHOICES = 2**20
"""The largest number of values of a discrete space, summed over its components: networks have a number for each value."""
MAX_KEY = 200
"""The largest number of characters in a key of a Dict space: names in agent files contain the keys and are limited, too."""
GymSpace = gym_spaces.Space[Any]
"""Any space of gymnasium, for modules that do not import gymnasium."""


def to_space(space: object, path: str = "space", depth: int = 0) -> Space:
    """The space of rlsdk for a space of gymnasium.

    Args:
        space: a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
        path: the name of the space in messages.
        depth: the number of Dict and Tuple spaces around it.

    Raises:
        UnsupportedSpaceError: the space is of another kind, is empty, has more than `MAX_CHOICES` discrete values, or cannot be
            stored in agent files.
    """
    _require_size(space, path)
    _require_storable(space, path, depth)
    if isinstance(space, gym_spaces.Box):
        return spaces.Box(space.low, space.high, tuple(space.shape), np.dtype(space.dtype).name)
    if isinstance(space, gym_spaces.Discrete):
        return spaces.Discrete(int(space.n), int(space.start))
    if isinstance(space, gym_spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise UnsupportedSpaceError(
                f"{path} is a MultiDiscrete of shape {space.nvec.shape}; flatten it to one dimension"
            )
        return spaces.MultiDiscrete(tuple(map(int, space.nvec)), tuple(map(int, space.start)))
    if isinstance(space, gym_spaces.MultiBinary):
        return spaces.MultiBinary(tuple(space.shape))
    if isinstance(space, gym_spaces.Dict):
        return spaces.Dict({key: to_space(child, f"{path}[{key!r}]", depth + 1) for key, child in space.spaces.items()})
    if isinstance(space, gym_spaces.Tuple):
        return spaces.Tuple(tuple(to_space(child, f"{path}[{i}]", depth + 1) for i, child in enumerate(space.spaces)))
    raise UnsupportedSpaceError(
        f"{path} is a {type(space).__name__}; rlsdk supports Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
    )


def to_gymnasium(space: Space, *, by_name: bool = False) -> GymSpace:
    """The gymnasium space for a space of rlsdk. Keys of a Dict keep their order; `by_name` sorts them."""
    if isinstance(space, spaces.Box):
        return gym_spaces.Box(np.array(space.low), np.array(space.high), space.shape, np.dtype(space.dtype).type)
    if isinstance(space, spaces.Discrete):
        return gym_spaces.Discrete(space.n, start=space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return gym_spaces.MultiDiscrete(np.array(space.nvec), start=np.array(space.start))
    if isinstance(space, spaces.MultiBinary):
        return gym_spaces.MultiBinary(list(space.shape) if len(space.shape) != 1 else space.shape[0])
    if isinstance(space, spaces.Dict):
        children = sorted(space.spaces.items()) if by_name else space.spaces.items()
        # gymnasium sorts the keys of a plain dict, and entries of action masks follow the order of the keys
        return gym_spaces.Dict(OrderedDict((key, to_gymnasium(child, by_name=by_name)) for key, child in children))
    return gym_spaces.Tuple([to_gymnasium(child, by_name=by_name) for child in space.spaces])


def distinct_texts(one: Space, other: Space) -> tuple[str, str]:
    """Two spaces that differ, as texts that differ: with the bounds of a Box where nothing else does."""
    texts = str(one), str(other)
    return texts if texts[0] != texts[1] else (_with_bounds(one), _with_bounds(other))


def _with_bounds(space: Space) -> str:
    boxes = [leaf for _, leaf in spaces.leaf_spaces(space) if isinstance(leaf, spaces.Box)]
    bounds = [f"{shown(box.low.tolist(), 60)} to {shown(box.high.tolist(), 60)}" for box in boxes]
    return f"{space} from {', '.join(bounds)}"


def spaces_of(env: Environment) -> tuple[Space, Space]:
    """(observation space, action space) of a gymnasium environment.

    Raises:
        EnvironmentFault: the environment lacks a space. UnsupportedSpaceError: see `to_space`.
    """
    observation, action = _space_of(env, "observation_space"), _space_of(env, "action_space")
    return to_space(observation, "observation"), to_space(action, "action")


def _space_of(env: Environment, name: str) -> object:
    if (space := attribute_of(env, name, MISSING)) is MISSING:
        fix = f"set self.{name} to a space of gymnasium in __init__, or {name} in the class"
        raise EnvironmentFault(f"environment {named(env)} has no {name}; {fix}")
    return space


def _require_size(space: object, path: str) -> None:
    if isinstance(space, gym_spaces.Box | gym_spaces.MultiBinary | gym_spaces.MultiDiscrete) and 0 in space.shape:
        raise UnsupportedSpaceError(f"{path} is a {type(space).__name__} of shape {space.shape}, which holds no number")
    if isinstance(space, gym_spaces.Dict | gym_spaces.Tuple) and not len(space.spaces):
        raise UnsupportedSpaceError(f"{path} is a {type(space).__name__} without parts")
    if isinstance(space, gym_spaces.Discrete):
        choices = int(space.n)
    elif isinstance(space, gym_spaces.MultiDiscrete):
        # As floats, whose sum does not overflow.
        choices = int(space.nvec.astype(float).sum())
    else:
        return
    if choices > MAX_CHOICES:
        raise UnsupportedSpaceError(
            f"{path} has {choices} discrete values, and networks take one number for each; at most {MAX_CHOICES} are"
            " accepted: use a Box, or a MultiDiscrete of its digits"
        )


def _require_storable(space: object, path: str, depth: int) -> None:
    """Raises UnsupportedSpaceError for a space with which an agent could be saved, but not loaded."""
    if depth > MAX_DEPTH:
        raise UnsupportedSpaceError(f"{path} lies in more than {MAX_DEPTH} Dict or Tuple spaces; nest them less deep")
    for key in space.spaces if isinstance(space, gym_spaces.Dict) else ():
        if isinstance(key, str) and len(key) > MAX_KEY:
            raise UnsupportedSpaceError(
                f"{path} has the key {shown(key, 50)} of {len(key)} characters; at most {MAX_KEY} are accepted: shorten it"
            )


LOOP = "for numpy arrays, step rlsdk_sb3.NumpyVectorEnv(env), or model.get_env()"


def no_tensors(action: object, wanted: str) -> UsageError:
    """The error for actions of a wrong type. `wanted` describes the accepted type."""
    return UsageError(
        f"actions are of type {type(action).__name__}; accepted: {wanted}, an action for each environment; {LOOP}"
    )


def not_finite(actions: object) -> DivergenceError:
    """The error for actions that are NaN or infinite."""
    return DivergenceError(f"the policy chose an action that is not finite: {actions}; its weights have diverged")


def part_of(actions: Any, key: str | int, space: Space) -> object:
    """The part `key` of actions in a Dict or Tuple space.

    Raises:
        UsageError: the actions have no such part.
    """
    try:
        part: object = actions[key]
    except (KeyError, IndexError, TypeError, ValueError):
        raise no_tensors(actions, f"a {type(space).__name__} of tensors, with the part {key!r}") from None
    return part


def without_record(observation: object, path: str) -> object:
    """The observation, unchanged.

    Raises:
        ObservationError: `observation` is a record, as vector environments of rlsdk return it.
    """
    if isinstance(observation, Observation | EnvStep):
        raise ObservationError(
            f"{path} is a record for algorithms ({type(observation).__name__}), not an array; {LOOP}"
        )
    return observation


def shape_of_value(value: Any, path: str) -> tuple[int, ...]:
    """The shape of an array, or of lists that can be converted to an array.

    Raises:
        ObservationError: the value cannot be converted to an array.
    """
    try:
        return np.shape(value)
    except (ValueError, TypeError, RuntimeError):
        # lists of different lengths
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
        hint = "; reset gives (observation, info): pass its first part" if pair else ""
        raise ObservationError(f"{path} is a {type(value).__name__} that makes no array{hint}") from None
