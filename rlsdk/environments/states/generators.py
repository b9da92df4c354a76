"""Random generators and simulator states from stored states.

Every number of a state is checked first, because numpy uses positions in it to access memory without checking them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import name_of_class
from rlsdk.errors import ArtifactError
from rlsdk.runtime.process import put_back as put_back_torch

KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""The generators of numpy that a file may name."""
WORDS = 2**128 - 1
LARGEST = {
    "pos": 624,
    "buffer_pos": 4,
    "has_uint32": 1,
    "has_gauss": 1,
    "uinteger": 2**32 - 1,
    "state": WORDS,
    "inc": WORDS,
}
"""Name of a whole number in the state of a generator -> its largest value."""


def numpy_generator(state: Any) -> np.random.Generator:
    """The numpy generator with `state` as its `bit_generator.state`.

    Raises:
        ArtifactError: no generator can have this state.
    """
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if not isinstance(name, str) or name not in KINDS:
        raise _refused(f"the generator {name!r}")
    made = getattr(np.random, name)(0)
    _require_like(name, state, made.state)
    # numpy accepts these two states, but the generators then repeat a few numbers, or always give the same one
    if state["state"].get("inc", 1) % 2 == 0:
        raise _refused("a generator with an even increment")
    if name == "MT19937" and not state["state"]["key"].any():
        raise _refused("a generator that gives no random numbers")
    made.state = state
    return np.random.Generator(made)


def legacy_generator(state: Any) -> np.random.RandomState:
    """The `RandomState` with `state` as its `get_state(legacy=False)`. Raises ArtifactError as `numpy_generator`."""
    made = np.random.RandomState(0)
    _require_like("RandomState", state, made.get_state(legacy=False))
    # refuses what no Mersenne twister can have
    numpy_generator({name: state[name] for name in ("bit_generator", "state")})
    made.set_state(state)
    return made


def python_generator(state: Any) -> random.Random:
    """The `random.Random` with `state` as its `getstate()`. Raises ArtifactError as `numpy_generator`."""
    version, words, gauss = state if isinstance(state, tuple) and len(state) == 3 else (None, None, None)
    if version != 3 or not isinstance(words, tuple) or not (gauss is None or type(gauss) is float):
        raise _refused("a generator of another kind")
    if not words or not all(type(word) is int and 0 <= word < 2**32 for word in words):
        raise _refused("a generator with numbers out of range")
    key = np.array(words[:-1], np.uint32)
    # it is a Mersenne twister, too
    numpy_generator({"bit_generator": "MT19937", "state": {"key": key, "pos": words[-1]}})
    made = random.Random()  # noqa: S311  # a generator of the environment, not for security
    made.setstate(state)
    return made


def torch_generator(state: NDArray[Any]) -> torch.Generator:
    """The `torch.Generator` with `state` as its `get_state()`. Raises ValueError if no generator can have this state."""
    made = torch.Generator()
    put_back_torch(made, torch.from_numpy(state))
    return made


GENERATORS: dict[type, tuple[str, Callable[[Any], object]]] = {
    np.random.Generator: ("generator", lambda made: made.bit_generator.state),
    np.random.RandomState: ("legacy", lambda made: made.get_state(legacy=False)),
    random.Random: ("random", random.Random.getstate),
    torch.Generator: ("torch", lambda made: made.get_state().numpy()),
}
"""Class of a generator -> (its kind in files, the function that reads its state)."""
MAKERS: dict[str, Callable[[Any], object]] = {
    "generator": numpy_generator,
    "legacy": legacy_generator,
    "random": python_generator,
    "torch": torch_generator,
}
"""Kind of a generator in files -> the function that makes one with a state, after checking the state."""


def _require_like(name: str, state: object, other: object) -> None:
    """Raises ArtifactError unless `state` has the entries, types and shapes of `other`, and whole numbers within `LARGEST`."""
    if isinstance(other, dict):
        if not isinstance(state, dict) or set(state) != set(other):
            raise _refused(f"a generator whose {name} has not exactly the entries {sorted(other)}")
        for inner, value in other.items():
            _require_like(inner, state[inner], value)
    elif isinstance(other, np.ndarray):
        if not isinstance(state, np.ndarray) or (state.dtype, state.shape) != (other.dtype, other.shape):
            raise _refused(f"a generator whose {name} is not {other.size} numbers of kind {other.dtype}")
    elif type(state) is not type(other) or (isinstance(state, int) and not 0 <= state <= LARGEST[name]):
        raise _refused(f"a generator with {name} = {state!r}")


def _refused(what: str) -> ArtifactError:
    return ArtifactError(f"the file is damaged: an environment's state holds {what}")


CLASS = "mujoco._structs.MjData"
REBUILT = ("efc_", "iefc_", "map_", "island_", "contact")
"""Beginnings of names of arrays that every step computes again. Their number of rows depends on the contacts."""
SWITCHES = ("eq_active",)
"""Arrays of truth values that belong to the state. Other arrays of integers are indices into MuJoCo's memory, which every step
computes again; values from a file must not replace them."""
_SHAPES: WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = WeakKeyDictionary()
"""Model -> name of an array -> its shape in a new simulation. This is a cache: finding the arrays takes almost 1 ms."""


def fields(data: Any) -> dict[str, NDArray[np.generic]]:
    """Name -> array of the state: float arrays and `SWITCHES` whose size depends only on the model."""
    shapes = _SHAPES.get(data.model)
    if shapes is None:
        shapes = _SHAPES[data.model] = _first_shapes(data.model)
    found = {name: getattr(data, name) for name in shapes}
    return {name: array for name, array in found.items() if array.shape == shapes[name]}


def _first_shapes(model: object) -> dict[str, tuple[int, ...]]:
    import mujoco

    fresh = mujoco.MjData(model)
    arrays = {name: getattr(fresh, name) for name in dir(fresh) if not name.startswith(("_", *REBUILT))}
    return {
        name: array.shape
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and (array.dtype.kind == "f" or name in SWITCHES)
    }


def gathered(data: object) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """(name -> number of bytes of each array, all arrays concatenated as bytes).

    Storing and sending a hundred small arrays separately takes ten times as long.
    """
    found = fields(data)
    joined = bytearray().join(map(np.ndarray.tobytes, found.values()))
    return {name: array.nbytes for name, array in found.items()}, np.frombuffer(joined, np.uint8)


def put_back(data: Any, time: float, sizes: Mapping[str, int], stored: NDArray[Any]) -> None:
    """Copy arrays from `gathered` into a simulation, and set its time. Arrays that the simulation lacks are ignored.

    Raises:
        ArtifactError: an array has another size, the time is not finite, or `data` is not a simulation.
    """
    are_sizes = all(type(size) is int and size >= 0 for size in sizes.values())
    if name_of_class(type(data)) != CLASS or not math.isfinite(time) or stored.dtype != np.uint8 or not are_sizes:
        raise ArtifactError("the file is damaged: an environment's state holds a simulation that cannot be")
    own, flat, parts, start = fields(data), stored.reshape(-1), dict[str, NDArray[np.generic]](), 0
    for name, size in sizes.items():
        if name in own:
            part = flat[start : start + size]
            if not part.nbytes == size == own[name].nbytes or (name in SWITCHES and (part > 1).any()):
                raise ArtifactError(f"the file is damaged, or of another simulation: its {name} does not fit")
            parts[name] = part.view(own[name].dtype).reshape(own[name].shape)
        start += size
    data.time = time
    for name, part in parts.items():
        own[name][...] = part
