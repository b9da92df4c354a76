"""Classes that describe observation and action spaces. They can be compared, stored as JSON, and need no gymnasium or torch.

`rlsdk.environments` converts the spaces of gymnasium to these and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import ArtifactError

__all__ = [
    "Box",
    "Dict",
    "Discrete",
    "MultiBinary",
    "MultiDiscrete",
    "Space",
    "Tuple",
    "choice_places",
    "choices_of",
    "dtype_of",
    "from_json",
    "leaf_spaces",
    "map_leaves",
    "shape_of",
    "to_json",
]

MAX_ELEMENTS = 2**25
"""The largest number of elements of an array in a space that is read from a file."""
MAX_DIMENSIONS, MAX_START = 32, 2**62
MAX_CHOICES = 2**20
"""The largest number of discrete choices of a space that is read from a file."""
MAX_DEPTH = 8
"""The largest number of levels of nested Dict and Tuple spaces in a file."""
LARGEST_BOUND = 1e18
"""Bounds beyond it count as infinite: some environments write the largest float32 for infinity. Their squares overflow."""
STORED_AS = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""The dtype that stores each larger unsigned integer, such as those of depth images. torch has these dtypes but can neither
index nor add their tensors."""
Actions: TypeAlias = NDArray[Any] | Any
"""Actions as environments take them: an array. For Dict and Tuple spaces they are a dict or tuple of arrays, or for several
environments a list of these. `Any` covers those forms, so that code for other spaces needs no type check."""


@attrs.frozen
class Box:
    """Arrays whose elements lie between those of `low` and `high`; `dtype` is the name of a numpy dtype."""

    # `==` of arrays is an array, which has no truth value.
    low: NDArray[Any] = attrs.field(eq=attrs.cmp_using(eq=np.array_equal), repr=False)
    high: NDArray[Any] = attrs.field(eq=attrs.cmp_using(eq=np.array_equal), repr=False)
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_image(self) -> bool:
        """Whether the arrays are images: uint8 from 0 to 255, with the dimensions height, width and channels (channels first or
        last)."""
        return self.dtype == "uint8" and len(self.shape) == 3 and self.low.min() == 0 and self.high.max() == 255

    @property
    def channels_last(self) -> bool:
        """Whether the last dimension of a three-dimensional array, and not the first, counts the channels."""
        return self.shape[0] != min(self.shape) and self.shape[2] == min(self.shape)

    @property
    def is_bounded(self) -> bool:
        """Whether all bounds are at most `LARGEST_BOUND`, so that numbers may be scaled to them."""
        # In float64: the absolute value of -128 does not fit into int8.
        return all(
            bool((np.abs(np.asarray(bound, np.float64)) <= LARGEST_BOUND).all()) for bound in (self.low, self.high)
        )


@attrs.frozen
class Discrete:
    """Whole numbers `start ... start + n - 1`."""

    n: int
    start: int = 0


@attrs.frozen
class MultiDiscrete:
    """Vectors whose element i is one of `start[i] ... start[i] + nvec[i] - 1`."""

    nvec: tuple[int, ...]
    start: tuple[int, ...]


@attrs.frozen
class MultiBinary:
    """Arrays of zeros and ones."""

    shape: tuple[int, ...]


@attrs.frozen
class Dict:
    """Dictionaries with a space for each key, in the given order."""

    spaces: Mapping[str, Space]


@attrs.frozen
class Tuple:
    """Tuples with a space for each position."""

    spaces: tuple[Space, ...]


Space = Box | Discrete | MultiDiscrete | MultiBinary | Dict | Tuple


def shape_of(space: Space) -> tuple[int, ...]:
    """The shape of one element of a leaf space.

    Raises:
        TypeError: the space is a Dict or Tuple.
    """
    if isinstance(space, Discrete):
        return ()
    if isinstance(space, MultiDiscrete):
        return (len(space.nvec),)
    if isinstance(space, Box | MultiBinary):
        return space.shape
    raise TypeError(f"a {type(space).__name__} has no single shape")


def dtype_of(space: Space) -> str:
    """The name of the numpy dtype that stores a leaf.

    It is float32 for any float Box, `STORED_AS` or the Box's dtype for other boxes, int8 for MultiBinary, and int64 otherwise.
    """
    if isinstance(space, Box):
        return (
            "float32" if np.issubdtype(np.dtype(space.dtype), np.floating) else STORED_AS.get(space.dtype, space.dtype)
        )
    return "int8" if isinstance(space, MultiBinary) else "int64"


def integer_bounds(space: Space) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """(smallest, largest) value of a Discrete, MultiDiscrete or MultiBinary leaf, as arrays; None for other leaves."""
    if isinstance(space, MultiBinary):
        return np.asarray(0), np.asarray(1)
    if isinstance(space, Discrete | MultiDiscrete):
        start = np.asarray(space.start)
        return start, start + np.asarray(space.n if isinstance(space, Discrete) else space.nvec) - 1
    return None


def choices_of(space: Space) -> tuple[int, ...]:
    """The number of values of each discrete choice of an action space, in the order of action masks; () for a Box."""
    if isinstance(space, Discrete):
        return (space.n,)
    if isinstance(space, MultiDiscrete):
        return space.nvec
    if isinstance(space, MultiBinary):
        return (2,) * math.prod(space.shape)
    if isinstance(space, Box):
        return ()
    children = space.spaces.values() if isinstance(space, Dict) else space.spaces
    return tuple(size for child in children for size in choices_of(child))


def map_leaves(space: Space, function: Callable[..., object], *values: Any, path: str = "observation") -> Any:
    """A value nested like the space, whose leaves are `function(path, leaf space, leaves of values...)`."""
    if isinstance(space, Dict):
        return {
            key: map_leaves(child, function, *(value[key] for value in values), path=f"{path}[{key!r}]")
            for key, child in space.spaces.items()
        }
    if isinstance(space, Tuple):
        return tuple(
            map_leaves(child, function, *(value[i] for value in values), path=f"{path}[{i}]")
            for i, child in enumerate(space.spaces)
        )
    return function(path, space, *values)


def map_space(space: Space, function: Callable[[Space], Space]) -> Space:
    """The space with every leaf replaced by `function(leaf)`."""
    if isinstance(space, Dict):
        return Dict({key: map_space(child, function) for key, child in space.spaces.items()})
    if isinstance(space, Tuple):
        return Tuple(tuple(map_space(child, function) for child in space.spaces))
    return function(space)


def in_order_of(space: Space, other: Space) -> Space:
    """The space with the keys of its Dicts in the order that they have in `other`; keys that `other` lacks come last."""
    if isinstance(space, Dict) and isinstance(other, Dict):
        keys = dict.fromkeys([*(key for key in other.spaces if key in space.spaces), *space.spaces])
        return Dict({key: in_order_of(space.spaces[key], other.spaces.get(key, space.spaces[key])) for key in keys})
    if isinstance(space, Tuple) and isinstance(other, Tuple):
        others = (*other.spaces, *space.spaces[len(other.spaces) :])
        return Tuple(tuple(map(in_order_of, space.spaces, others)))
    return space


def choice_places(space: Space, other: Space) -> list[int] | None:
    """The places that the entries of an action mask of `space` have in one of `other`, an equal space; None if the same."""
    places, start = dict[str, range](), 0
    for path, leaf in leaf_spaces(other):
        places[path] = range(start, start := start + sum(choices_of(leaf)))
    found = [place for path, _ in leaf_spaces(space) for place in places[path]]
    return None if found == sorted(found) else found


def leaf_spaces(space: Space, path: str = "observation") -> Iterator[tuple[str, Space]]:
    """Yield (path, leaf) for every leaf of a space; a path is text such as `observation['camera']`."""
    if isinstance(space, Dict):
        for key, child in space.spaces.items():
            yield from leaf_spaces(child, f"{path}[{key!r}]")
    elif isinstance(space, Tuple):
        for index, child in enumerate(space.spaces):
            yield from leaf_spaces(child, f"{path}[{index}]")
    else:
        yield path, space


def nbytes(space: Space) -> int:
    """The number of bytes that store one element of the space."""
    return sum(math.prod(shape_of(leaf)) * np.dtype(dtype_of(leaf)).itemsize for _, leaf in leaf_spaces(space))


def to_json(space: Space) -> dict[str, object]:
    """The space as JSON values. A bound with equal elements is written as one number, and infinities as text."""
    kind = type(space).__name__
    if isinstance(space, Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": kind, "shape": list(space.shape), "dtype": space.dtype, **bounds}
    if isinstance(space, Dict):
        return {"kind": kind, "spaces": {key: to_json(child) for key, child in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"kind": kind, "spaces": [to_json(child) for child in space.spaces]}
    values = attrs.asdict(space)
    return {"kind": kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}


def _bound_to_json(bound: NDArray[np.generic]) -> object:
    values = bound.ravel().tolist()
    values = values[:1] if len(set(values)) == 1 else values
    # JSON has no infinity.
    return [str(v) if isinstance(v, float) and math.isinf(v) else v for v in values]


def from_json(data: object) -> Space:
    """The space that `to_json` wrote. Every field is checked, because the data may be malicious.

    Raises:
        ArtifactError: the data do not describe a space.
    """
    try:
        return _from_json(data, depth=0)
    # The others are of values that are neither tables nor lists.
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ArtifactError(f"the file does not describe a space: {type(error).__name__}: {error}") from None


def _from_json(data: Any, depth: int) -> Space:
    if depth > MAX_DEPTH:
        raise ValueError(f"spaces are nested more than {MAX_DEPTH} deep")
    kind = data["kind"]
    if kind == "Dict":
        return Dict({str(key): _from_json(child, depth + 1) for key, child in data["spaces"].items()})
    if kind == "Tuple":
        return Tuple(tuple(_from_json(child, depth + 1) for child in data["spaces"]))
    if kind == "Discrete":
        return Discrete(_count(data["n"]), _whole(data["start"]))
    if kind == "MultiDiscrete":
        nvec, start = tuple(map(_count, data["nvec"])), tuple(map(_whole, data["start"]))
        if len(nvec) != len(start) or not 0 < len(nvec) <= MAX_CHOICES:
            raise ValueError("nvec and start differ in length, or are none or too many")
        return MultiDiscrete(nvec, start)
    if kind == "MultiBinary":
        return MultiBinary(_shape_from_json(data["shape"], MAX_CHOICES))
    if kind == "Box":
        shape, dtype = _shape_from_json(data["shape"]), np.dtype(str(data["dtype"]))
        if dtype.kind not in "fiub":
            raise ValueError(f"dtype {dtype} is not numeric")
        low, high = (_bound_from_json(data[name], shape, dtype) for name in ("low", "high"))
        return Box(low, high, shape, dtype.name)
    raise ValueError(f"unknown kind {kind!r}")


def _shape_from_json(sizes: Iterable[object], most: int = MAX_ELEMENTS) -> tuple[int, ...]:
    shape = tuple(map(_count, sizes))
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) > most:
        raise ValueError(f"shape {shape} is too large")
    return shape


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_ELEMENTS:
        raise ValueError(f"{value!r} is not a positive size")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -MAX_START <= value <= MAX_START:
        raise ValueError(f"{value!r} is not a whole number that values may start at")
    return value


def _bound_from_json(values: object, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    flat = np.asarray([float(v) if isinstance(v, str) else v for v in values], dtype=dtype)
    # A view of one number takes no memory, so a small file cannot make a large array.
    return np.broadcast_to(flat.reshape(()), shape) if flat.size == 1 else flat.reshape(shape)
