"""Reads and restores the state of one gymnasium environment: attributes of the environment and of each wrapper around it.

If the environment or a wrapper has methods `get_state()` and `set_state(state)`, these define its state.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.attributes import Environment, named
from rlsdk.environments.states.attributes import Assigned
from rlsdk.environments.states.fitting import may_name_place, require_fit
from rlsdk.environments.states.reader import MISSING, Reader
from rlsdk.environments.states.values import Writer, is_constant
from rlsdk.errors import ArtifactError, fitting

GENERATORS = (np.random.Generator, type(None))
OWN_SPACES = ("action_space", "observation_space", "_action_space", "_observation_space")


def capture(environment: object) -> dict[str, object]:
    """The state of an environment: `layout` (JSON text) and `arrays` (number -> uint8 tensor).

    Raises:
        OpaqueValue: an attribute has a value whose state cannot be read; the message names the attribute.
    """
    writer = Writer()
    found = list(_layers(environment))
    assigned = Assigned(found)
    layers = [_layer(layer, writer, assigned) for layer in found]
    arrays = {f"{i:03d}": torch.from_numpy(_bytes(array)) for i, array in enumerate(writer.arrays)}
    return {"layout": json.dumps(layers), "arrays": arrays}


MOVED = {"rlsdk.environments.toy.": "rlsdk_envs.toy.", "rlsdk.environments.wrappers.atari.": "rlsdk_envs.atari."}
"""Beginning of the names of classes in files written before the classes moved -> where they are now."""


def _present_name(stored: str) -> str:
    before = next((start for start in MOVED if str(stored).startswith(start)), "")
    return MOVED.get(before, "") + str(stored).removeprefix(before)


def restore(environment: Any, state: Any) -> None:
    """Restore a state from `capture` in an environment that was made in the same way.

    Only attributes that `capture` reads are set, each to a value of the same kind as its present value. Attributes of the
    construction (limits, spaces, folders, functions) do not change.

    Raises:
        ArtifactError: the state is damaged, or belongs to another kind of environment.
    """
    with fitting(f"the state of {named(environment)} in the file cannot be used"):
        arrays: dict[str, Tensor] = state.get("arrays", {})
        reader = Reader([_read(arrays[name]) for name in sorted(arrays, key=int)])
        stored, layers = json.loads(state["layout"]), list(_layers(environment))
        if [_present_name(entry["class"]) for entry in stored] != [_name(layer) for layer in layers]:
            raise ArtifactError(
                f"the file holds the state of {stored[0]['class']}, wrapped otherwise than {named(environment)}"
                " or of another kind; make it as for the training, or begin new episodes: load(..., force_reset=True)"
            )
        assigned = Assigned(layers)
        for entry, layer in zip(stored, layers, strict=True):
            _put(layer, entry, reader, assigned)


def _layers(environment: Any) -> Iterator[Environment]:
    """Yield the outermost wrapper, each wrapper inside it, and the environment itself."""
    yield environment
    while environment is not environment.unwrapped:
        environment = environment.env
        yield environment


def _name(layer: object) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _layer(layer: Any, writer: Writer, assigned: Assigned) -> dict[str, object]:
    where = type(layer).__name__
    if _has_own(layer):
        generator = writer(vars(layer).get("_np_random"), where)
        own = writer(layer.get_state(), where)
        spaces = {name: writer(space, where) for name, space in _spaces(layer).items()}
        return {"class": _name(layer), "own": own, "_np_random": generator, "spaces": spaces}
    attributes = {
        name: writer(value, f"{where}.{name}")
        for name, value in vars(layer).items()
        if assigned.is_state(layer, name, value)
    }
    return {"class": _name(layer), "attributes": attributes}


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
