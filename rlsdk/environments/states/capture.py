"""Reads and restores the state of one gymnasium environment: attributes of the environment and of each wrapper around it.

If the environment or a wrapper has methods `get_state()` and `set_state(state)`, these define its state.
"""

from __future__ import annotations

import dis
import functools
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import Environment, layers_of, name_of_class, named
from rlsdk.environments.states.values import (
    MISSING,
    OpaqueValue,
    Reader,
    Writer,
    is_constant,
    may_name_place,
    require_fit,
)
from rlsdk.errors import ArtifactError, fitting
from rlsdk.interfaces import VectorEnvAbilities, ability

GENERATORS = (np.random.Generator, type(None))
OWN_SPACES = ("action_space", "observation_space", "_action_space", "_observation_space")


def capture(environment: object) -> dict[str, object]:
    """The state of an environment: `layout` (JSON text) and `arrays` (number -> uint8 tensor).

    Raises:
        OpaqueValue: an attribute has a value whose state cannot be read; the message names the attribute.
    """
    writer = Writer()
    found = list(layers_of(environment))
    assigned = Assigned(found)
    layers = [_layer(layer, writer, assigned) for layer in found]
    arrays = {f"{i:03d}": torch.from_numpy(_bytes(array)) for i, array in enumerate(writer.arrays)}
    return {"layout": json.dumps(layers), "arrays": arrays}


def restore(environment: object, state: Any) -> None:
    """Restore a state from `capture` in an environment that was made in the same way.

    Only attributes that `capture` reads are set, each to a value of the same kind as its present value. Attributes of the
    construction (limits, spaces, folders, functions) do not change.

    Raises:
        ArtifactError: the state is damaged, or belongs to another kind of environment.
    """
    with fitting(f"the state of {named(environment)} in the file cannot be used"):
        arrays: dict[str, Tensor] = state.get("arrays", {})
        reader = Reader([_read(arrays[name]) for name in sorted(arrays, key=int)])
        stored, layers = json.loads(state["layout"]), list(layers_of(environment))
        # without their modules, which may change: the state itself is checked below, attribute by attribute
        if [entry["class"].rpartition(".")[2] for entry in stored] != [type(layer).__name__ for layer in layers]:
            raise ArtifactError(
                f"the file holds the state of {stored[0]['class']}, wrapped differently than {named(environment)}"
                " or of another kind; wrap it as in training, or begin new episodes: load(..., force_reset=True)"
            )
        assigned = Assigned(layers)
        for entry, layer in zip(stored, layers, strict=True):
            _put(layer, entry, reader, assigned)


def _layer(layer: Any, writer: Writer, assigned: Assigned) -> dict[str, object]:
    where = type(layer).__name__
    if _has_own(layer):
        generator = writer(vars(layer).get("_np_random"), where)
        own = writer(layer.get_state(), where)
        spaces = {name: writer(space, where) for name, space in _spaces(layer).items()}
        return {"class": name_of_class(type(layer)), "own": own, "_np_random": generator, "spaces": spaces}
    attributes = {
        name: writer(value, f"{where}.{name}")
        for name, value in vars(layer).items()
        if assigned.is_state(layer, name, value)
    }
    return {"class": name_of_class(type(layer)), "attributes": attributes}


def _spaces(layer: object) -> dict[str, gymnasium.Space[object]]:
    """The spaces of an environment or wrapper with its own methods, which need not know of the generators in them."""
    found = {name: vars(layer).get(name) for name in OWN_SPACES}
    return {name: space for name, space in found.items() if isinstance(space, gymnasium.Space)}


def _has_own(layer: object) -> bool:
    return hasattr(type(layer), "get_state") and hasattr(type(layer), "set_state")


def _put(layer: Environment, entry: dict[str, Any], reader: Reader, assigned: Assigned) -> None:
    if ("own" in entry) != _has_own(layer):
        raise ArtifactError(f"the file is damaged: it holds no state of {type(layer).__name__}")
    if "own" in entry:
        generator = reader(entry["_np_random"])  # in the order of writing, which references between values need
        _put_own(layer, reader(entry["own"]), generator)
        for name, space in _spaces(layer).items():
            if name in entry.get("spaces", {}):  # files from before this entry have none
                reader(entry["spaces"][name], space)
        return
    for name, code in entry["attributes"].items():
        present = _present(layer, name)
        value = reader(code, present)  # read even if it is not used: later values may refer to it
        if present is not MISSING and not assigned.is_state(layer, name, present):
            continue
        where = f"{type(layer).__name__}.{name}"
        require_fit(where, value, present, assigned=assigned.has(layer, name))
        if value is not present and not may_name_place(name, value, present):
            object.__setattr__(layer, name, value)


def _put_own(layer: Any, state: object, generator: object) -> None:
    """Restore an environment or wrapper with its own method `set_state`, and the random generator of an environment."""
    name = type(layer).__name__
    if not isinstance(generator, GENERATORS):
        raise ArtifactError(f"the file is damaged: it holds no generator for {name}")
    if may_name_place("", state, layer.get_state()):
        raise ArtifactError(f"the file is refused: the state of {name} in it may name a file or folder")
    try:
        layer.set_state(state)
    except Exception as error:  # code of the environment may raise any error
        raise ArtifactError(f"the state in the file does not fit {name}: {type(error).__name__}: {error}") from None
    if layer is layer.unwrapped:  # a wrapper uses the generator of the environment inside it
        layer._np_random = generator


def _present(layer: object, name: str) -> object:
    """The present value of an attribute: that of the instance, or the default in its class, or `MISSING`.

    Raises:
        ArtifactError: the class has a method or a constant of this name.
    """
    own = vars(layer).get(name, MISSING)
    default = inspect.getattr_static(type(layer), name, MISSING)
    if own is MISSING and (is_constant(default) or hasattr(type(default), "__get__")):
        raise ArtifactError(f"the file is damaged: it sets {name!r} of {type(layer).__name__}, which is not a value")
    return default if own is MISSING else own


def _read(array: Any) -> Any:
    if array.dtype != torch.uint8 or array.dim() != 1:
        raise ArtifactError("the file is damaged: an environment's state holds an array that is not bytes")
    return array.numpy()


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.frombuffer(array.tobytes(), np.uint8).copy()


# Finds the attributes of an environment that are its state, as opposed to those of its construction.
#
# An attribute belongs to the construction if only `__init__` assigns it and its value is immutable. Examples are the
# limit of a `TimeLimit` and the folder of a `RecordVideo`. Such an attribute is not stored in a file, and a file cannot
# change it.

CONSTRUCTION = (
    "env",
    "spec",
    "metadata",
    "render_mode",
    "_saved_kwargs",
    "_ezpickle_args",
    "_ezpickle_kwargs",
    "_cached_spec",
    "_metadata",
)
"""Attributes that always belong to the construction."""
WRITES = ("STORE_ATTR", "DELETE_ATTR")
UNSEEN_WRITES = {"setattr", "__dict__", "__setattr__", "vars"}
"""Names in code that indicate that it may assign any attribute, because the attribute's name is a variable."""
KNOWN = {*sys.stdlib_module_names, "gymnasium"}
"""Packages whose use of `UNSEEN_WRITES` is known: they assign attributes of other objects, or only in a constructor."""
SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)


class Assigned:
    """The names of attributes that the code of some environments and wrappers assigns after construction."""

    def __init__(self, layers: Iterable[object]) -> None:
        found: dict[type, tuple[frozenset[str], bool]] = {kind: _assigned_by(kind) for kind in map(type, layers)}
        self._names = frozenset[str]().union(*(names for names, _ in found.values()))
        self._open = {kind for kind, (_, is_open) in found.items() if is_open}

    def has(self, layer: object, name: str) -> bool:
        """Whether attribute `name` of `layer` may be assigned after construction."""
        return name in self._names or type(layer) in self._open

    def is_state(self, layer: object, name: str, value: object) -> bool:
        """Whether the attribute `name` of `layer`, now `value`, can change while the environment is used."""
        return name not in CONSTRUCTION and (self.has(layer, name) or not _is_immutable(value))


def _is_immutable(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_immutable, value))
    return isinstance(value, SCALARS)


@functools.cache
def _assigned_by(kind: type) -> tuple[frozenset[str], bool]:
    """(names of attributes that methods other than `__init__` assign, whether the class may assign any other attribute)."""
    names, setters, is_open = set[str](), dict[str, set[str]](), False
    for base in kind.__mro__[:-1]:
        foreign = base.__module__.partition(".")[0] not in KNOWN
        for method, value in vars(base).items():
            is_open = is_open or type(value).__name__ == "cython_function_or_method"
            parts = [part for code in _codes(value) for part in _parts(code, outer=method != "__init__")]
            names.update(_stored(parts))
            is_open = is_open or (foreign and any(UNSEEN_WRITES & {*part.co_names} for part in parts))
            if isinstance(value, property):
                found = [part for f in (value.fset, value.fdel) for code in _codes(f) for part in _parts(code)]
                setters.setdefault(method, set()).update(_stored(found))
    while used := {name: stored for name, stored in setters.items() if name in names and not stored <= names}:
        names.update(*used.values())  # a setter counts only if a method of the environments assigns its property
    return frozenset(names), is_open


def _codes(value: object) -> Iterator[CodeType]:
    """The code of a function or method, or of the getter of a property."""
    for part in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "func"))):
        code = getattr(getattr(part, "__wrapped__", part), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _parts(code: CodeType, *, outer: bool = True) -> Iterator[CodeType]:
    """The code of all functions that are defined inside `code`, and `code` itself if `outer`."""
    if outer:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _stored(parts: Iterable[CodeType]) -> set[str]:
    return {i.argval for part in parts for i in dis.get_instructions(part) if i.opname in WRITES}


MAX_LENGTH = 2**62


def read_state(env: object) -> Mapping[str, object]:
    """The state of a vector environment.

    Raises:
        OpaqueValue: it has no method `get_state`, or it contains a value whose state cannot be read.
    """
    if (able := ability(env, VectorEnvAbilities, "get_state")) is None:
        raise OpaqueValue(f"{type(env).__name__} has no method get_state")
    return able.get_state()


def state_of(states: Sequence[dict[str, object]], has_masks: bool) -> dict[str, object]:
    """The state of a vector environment from those of its environments. Leaves are tensors and JSON scalars.

    `has_masks`: whether the environments give action masks.
    """
    return {"has_masks": has_masks, "copies": {f"{i:05d}": state for i, state in enumerate(states)}}


def states_in(state: object, count: int) -> list[Any]:
    """The states of `count` environments, in order.

    Raises:
        ArtifactError: `state` has another number of environments.
    """
    copies = state.get("copies", {}) if isinstance(state, dict) else {}
    if len(copies) != count:
        raise ArtifactError(f"the file holds the state of {len(copies)} environments, there are {count} here")
    return [copies[name] for name in sorted(copies)]


def running_episode(state: Any) -> tuple[float, int]:
    """(return so far, first step of the episode) of one environment, where the current step has the number 0.

    Raises:
        ArtifactError: the return or the length in the state is invalid.
    """
    total, length = state["return"], state["length"]
    if type(total) not in (float, int) or type(length) is not int or not 0 <= length <= MAX_LENGTH:
        raise ArtifactError(f"the file is damaged: an episode has the return {total!r} after {length!r} steps")
    return float(total), -length


def masks_in(state: Any) -> bool:
    """Whether the environments gave action masks. Raises ArtifactError when the entry is not a bool."""
    if type(state["has_masks"]) is not bool:
        raise ArtifactError(f"the file is damaged: environments have masks = {state['has_masks']!r}")
    return bool(state["has_masks"])
