"""One gymnasium environment: the attributes of every wrapper and of what is inside.

An environment or wrapper with methods `get_state()` and `set_state(state)` says itself what its state is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.attributes import named
from rlsdk.environments.states.values import MISSING, Reader, Writer
from rlsdk.errors import ArtifactError, fitting

CONSTRUCTION = ("env", "spec", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs", "_cached_spec")
"""Attributes that say how an environment was made."""


def capture(environment: Any) -> dict[str, Any]:
    """The state as `layout` (JSON text) and `arrays` (uint8 tensors by number).

    Raises:
        OpaqueValue: it holds something whose state cannot be told; the text names it.
    """
    writer = Writer()
    layers = [_layer(layer, writer) for layer in _layers(environment)]
    arrays = {f"{i:03d}": torch.from_numpy(_bytes(array)) for i, array in enumerate(writer.arrays)}
    return {"layout": json.dumps(layers), "arrays": arrays}


def restore(environment: Any, state: Any) -> None:
    """Put back what `capture` took out, into an environment made the same way.

    Raises:
        ArtifactError: the state is damaged, or of another kind of environment.
    """
    with fitting(f"the state of {named(environment)} in the file cannot be used"):
        arrays: dict[str, Tensor] = state.get("arrays", {})
        reader = Reader([arrays[name].numpy().reshape(-1) for name in sorted(arrays, key=int)])
        stored, layers = json.loads(state["layout"]), list(_layers(environment))
        if [entry["class"] for entry in stored] != [_name(layer) for layer in layers]:
            raise ArtifactError(
                f"the file holds the state of {stored[0]['class']}, wrapped otherwise than {named(environment)}"
                " or of another kind"
            )
        for entry, layer in zip(stored, layers, strict=True):
            _put(layer, entry, reader)


def _layers(environment: Any) -> Iterator[Any]:
    """The environment, wrapper by wrapper, down to the one inside."""
    yield environment
    while environment is not environment.unwrapped:
        environment = environment.env
        yield environment


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _layer(layer: Any, writer: Writer) -> dict[str, Any]:
    where = type(layer).__name__
    if hasattr(type(layer), "get_state") and hasattr(type(layer), "set_state"):
        generator = writer(vars(layer).get("_np_random"), where)
        return {"class": _name(layer), "own": writer(layer.get_state(), where), "_np_random": generator}
    attributes = {n: writer(value, f"{where}.{n}") for n, value in vars(layer).items() if n not in CONSTRUCTION}
    return {"class": _name(layer), "attributes": attributes}


def _put(layer: Any, entry: dict[str, Any], reader: Reader) -> None:
    if "own" in entry:
        layer.set_state(reader(entry["own"]))
        if layer is layer.unwrapped:  # a wrapper has the generator of what is inside
            layer._np_random = reader(entry["_np_random"])
        return
    present = vars(layer)
    for name, code in entry["attributes"].items():
        if hasattr(type(layer), name) and name not in present:
            raise ArtifactError(f"the file is damaged: it sets {name!r} of {type(layer).__name__}, which is no value")
        value = reader(code, present.get(name, MISSING))
        if value is not present.get(name, MISSING):
            object.__setattr__(layer, name, value)


def _bytes(array: Any) -> Any:
    return np.frombuffer(array.tobytes(), np.uint8).copy()
