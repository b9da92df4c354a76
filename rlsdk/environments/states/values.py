"""Encodes values of environments as JSON and arrays: numbers, texts, containers, arrays and random generators.

If two attributes refer to the same object, they refer to the same object again after decoding.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.states import simulation
from rlsdk.environments.states.simulation import class_name

JSON_SCALARS = (bool, int, str, type(None))
CONSTANTS = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, partial, PurePath)
"""Types of values that are treated as constants: they are not stored, because the restored environment has its own."""
CONSTANT_MODULES = ("gymnasium.envs.registration", "gymnasium.envs.mujoco.mujoco_rendering", "pygame")
CONSTANT_CLASSES = ("mujoco._structs.MjModel",)
CONTAINERS: dict[str, Callable[[Iterable[Hashable]], object]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}
PLAIN_KINDS = "biufcmMSU"
"""Kinds of numpy dtypes that contain values and not references to objects: numbers, dates and texts."""


class OpaqueValue(Exception):  # noqa: N818  # named after the value
    """Raised for a value whose state cannot be read; the message names the attribute that has it."""


class Writer:
    """Encodes values as JSON. Arrays are appended to `arrays`, and the JSON has their numbers."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.generic]] = []
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # references to the encoded objects, so that Python does not reuse their ids

    def __call__(self, value: object, where: str) -> object:
        """Encode a value as JSON for `Reader`. `where` names its attribute for messages.

        Raises:
            OpaqueValue: values of this type cannot be encoded.
        """
        if type(value) in JSON_SCALARS:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if is_constant(value):
            return {"constant": True}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        if (encode := _encoder(value)) is None:
            raise OpaqueValue(f"{where} is a {class_name(value)}")
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return encode(self, value, where)

    def _array(self, value: NDArray[np.generic], where: str) -> dict[str, object]:
        if value.dtype.kind not in PLAIN_KINDS:
            raise OpaqueValue(f"{where} is an array of objects")
        self.arrays.append(np.ascontiguousarray(value))
        return {"array": len(self.arrays) - 1, "dtype": value.dtype.str, "shape": list(value.shape)}

    def _scalar(self, value: object, where: str) -> dict[str, object]:
        return {"scalar": self._array(np.asarray(value), where)}

    def _tensor(self, value: torch.Tensor, where: str) -> dict[str, object]:
        try:
            return {"tensor": self._array(value.numpy(force=True), where)}
        except TypeError:
            raise OpaqueValue(f"{where} is a tensor of dtype {value.dtype}") from None

    def _generator(self, value: np.random.Generator, where: str) -> dict[str, object]:
        return {"generator": self(value.bit_generator.state, where)}

    def _legacy(self, value: np.random.RandomState, where: str) -> dict[str, object]:
        return {"legacy": self(value.get_state(legacy=False), where)}

    def _python_random(self, value: random.Random, where: str) -> dict[str, object]:
        return {"random": self(value.getstate(), where)}

    def _torch_generator(self, value: torch.Generator, where: str) -> dict[str, object]:
        return {"torch": self._array(value.get_state().numpy(), where)}

    def _space(self, value: object, where: str) -> dict[str, object]:
        return {"space": [self(vars(part).get("_np_random"), where) for part in parts_of(value)]}

    def _simulation(self, value: Any, where: str) -> dict[str, object]:
        sizes, found = simulation.gathered(value)
        return {"simulation": {"time": float(value.time).hex(), "sizes": sizes, "values": self._array(found, where)}}

    def _dict(self, value: dict[object, object], where: str) -> dict[str, object]:
        return {"dict": [[self(k, where), self(v, f"{where}[{k!r}]")] for k, v in value.items()]}

    def _deque(self, value: deque[object], where: str) -> dict[str, object]:
        return {"deque": [self(item, where) for item in value], "maxlen": value.maxlen}

    def _container(self, value: Collection[object], where: str) -> dict[str, object]:
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return {type(value).__name__: [self(item, f"{where}[{i}]") for i, item in enumerate(items)]}


ENCODERS: dict[type, Callable[[Writer, Any, str], dict[str, object]]] = {
    np.ndarray: Writer._array,
    np.random.Generator: Writer._generator,
    np.random.RandomState: Writer._legacy,
    random.Random: Writer._python_random,
    torch.Generator: Writer._torch_generator,
    torch.Tensor: Writer._tensor,
    dict: Writer._dict,
    deque: Writer._deque,
    **dict.fromkeys((tuple, list, set, frozenset), Writer._container),
}


def is_constant(value: object) -> bool:
    """Whether a value is treated as a constant of the environment, which is not stored."""
    return (
        isinstance(value, CONSTANTS)
        or _module(value).startswith(CONSTANT_MODULES)
        or class_name(value) in CONSTANT_CLASSES
    )


def _module(value: object) -> str:
    return type(value).__module__


def parts_of(space: object) -> list[Any]:
    """The space and all spaces inside it, each of which may have its own random generator."""
    inner = getattr(space, "spaces", ())
    children = inner.values() if hasattr(inner, "values") else inner
    return [space, *(part for child in children for part in parts_of(child))]


def _encoder(value: object) -> Callable[[Writer, Any, str], dict[str, object]] | None:
    if isinstance(value, gymnasium.Space):
        return Writer._space
    if class_name(value) == simulation.CLASS:
        return Writer._simulation
    return Writer._scalar if isinstance(value, np.generic) else ENCODERS.get(type(value))
