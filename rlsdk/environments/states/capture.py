"""One gymnasium environment: the attributes of every wrapper and of what is inside, and MuJoCo's simulation.

An environment or wrapper with methods `get_state()` and `set_state(state)` says itself what its state is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.states.values import MISSING, Reader, Writer
from rlsdk.errors import ArtifactError

CONSTRUCTION = ("env", "spec", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs", "_cached_spec")
"""Attributes that say how an environment was made."""
DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


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
    try:
        arrays: dict[str, Tensor] = state.get("arrays", {})
        reader = Reader([arrays[name].numpy().reshape(-1) for name in sorted(arrays, key=int)])
        stored, layers = json.loads(state["layout"]), list(_layers(environment))
        if [entry["class"] for entry in stored] != [_name(layer) for layer in layers]:
            raise ArtifactError(
                f"the file holds the state of {stored[0]['class']}, wrapped otherwise than {environment} or of another kind"
            )
        for entry, layer in zip(stored, layers, strict=True):
            _put(layer, entry, reader)
    except DAMAGED as error:
        raise ArtifactError(
            f"the state of {environment} in the file cannot be used: {type(error).__name__}: {error}"
        ) from None


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
    attributes = {}
    for name, value in vars(layer).items():
        if name in CONSTRUCTION:
            continue
        attributes[name] = _simulation(value, writer) if _is_simulation(value) else writer(value, f"{where}.{name}")
    return {"class": _name(layer), "attributes": attributes}


def _put(layer: Any, entry: dict[str, Any], reader: Reader) -> None:
    if "own" in entry:
        layer.set_state(reader(entry["own"]))
        layer._np_random = reader(entry["_np_random"])
        return
    present = vars(layer)
    for name, code in entry["attributes"].items():
        if isinstance(code, dict) and "simulation" in code:
            _resume_simulation(present[name], code["simulation"], reader)
            continue
        if hasattr(type(layer), name) and name not in present:
            raise ArtifactError(f"the file is damaged: it sets {name!r} of {type(layer).__name__}, which is no value")
        value = reader(code, present.get(name, MISSING))
        if value is not present.get(name, MISSING):
            object.__setattr__(layer, name, value)


def _bytes(array: Any) -> Any:
    return np.frombuffer(array.tobytes(), np.uint8).copy()


# --- MuJoCo ------------------------------------------------------------------------------------------------------------


def _is_simulation(value: Any) -> bool:
    return type(value).__name__ == "MjData" and type(value).__module__.startswith("mujoco")


def _fields(data: Any) -> list[str]:
    """Arrays whose size depends on the model alone; the others are made anew in every step."""
    import mujoco

    fresh = mujoco.MjData(data.model)
    names = [name for name in dir(fresh) if not name.startswith("_") and isinstance(getattr(fresh, name), np.ndarray)]
    return [name for name in names if getattr(fresh, name).shape == getattr(data, name).shape and not _varies(name)]


def _varies(name: str) -> bool:
    return name.startswith(("efc_", "iefc_", "map_", "island_", "contact"))


def _simulation(data: Any, writer: Writer) -> dict[str, Any]:
    fields = {name: writer(getattr(data, name).copy(), name) for name in _fields(data)}
    return {"simulation": {"time": float(data.time).hex(), "fields": fields}}


def _resume_simulation(data: Any, stored: dict[str, Any], reader: Reader) -> None:
    known = set(_fields(data))
    data.time = float.fromhex(stored["time"])
    for name, code in stored["fields"].items():
        value = reader(code)
        if name in known:
            getattr(data, name)[...] = value
