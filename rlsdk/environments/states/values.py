"""Values environments hold, as JSON and arrays: numbers, texts, containers, arrays and random generators.

Two attributes that hold the same object hold the same one again when they are put back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.states import simulation
from rlsdk.errors import ArtifactError

JSON_SCALARS = (bool, int, str, type(None))
CONSTANTS = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, partial, PurePath)
"""Kinds of values that are taken for unchanging: the environment put back into has its own."""
CONSTANT_MODULES = ("gymnasium.envs.registration", "gymnasium.envs.mujoco.mujoco_rendering", "pygame")
CONSTANT_CLASSES = ("mujoco._structs.MjModel",)
CONTAINERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}
BIT_GENERATORS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}


class OpaqueValue(Exception):  # noqa: N818  # says what was met
    """A value whose state cannot be told from outside; the text says where it is."""


class Writer:
    """Turns values into JSON; what is an array goes to `arrays`."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that ids are not given twice

    def __call__(self, value: Any, where: str) -> Any:
        """JSON that `Reader` understands.

        Raises:
            OpaqueValue: a kind of object this module knows nothing about.
        """
        if type(value) in JSON_SCALARS:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if (
            isinstance(value, CONSTANTS)
            or _module(value).startswith(CONSTANT_MODULES)
            or _class(value) in CONSTANT_CLASSES
        ):
            return {"constant": True}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        if (encode := _encoder(value)) is None:
            raise OpaqueValue(f"{where} is a {_class(value)}")
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return encode(self, value, where)

    def _array(self, value: Any, where: str) -> Any:
        if value.dtype.hasobject:
            raise OpaqueValue(f"{where} is an array of objects")
        self.arrays.append(np.ascontiguousarray(value))
        return {"array": len(self.arrays) - 1, "dtype": value.dtype.str, "shape": list(value.shape)}

    def _scalar(self, value: Any, where: str) -> Any:
        return {"scalar": self._array(np.asarray(value), where)}

    def _tensor(self, value: Any, where: str) -> Any:
        return {"tensor": self._array(value.numpy(force=True), where)}

    def _generator(self, value: Any, where: str) -> Any:
        return {"generator": self(value.bit_generator.state, where)}

    def _legacy(self, value: Any, where: str) -> Any:
        return {"legacy": self(value.get_state(legacy=False), where)}

    def _python_random(self, value: Any, where: str) -> Any:
        return {"random": self(value.getstate(), where)}

    def _torch_generator(self, value: Any, where: str) -> Any:
        return {"torch": self._array(value.get_state().numpy(), where)}

    def _space(self, value: Any, where: str) -> Any:
        return {"space": [self(vars(part).get("_np_random"), where) for part in _parts(value)]}

    def _simulation(self, value: Any, where: str) -> Any:
        found = {name: self._array(getattr(value, name).copy(), name) for name in simulation.fields(value)}
        return {"simulation": {"time": float(value.time).hex(), "fields": found}}

    def _dict(self, value: Any, where: str) -> Any:
        return {"dict": [[self(k, where), self(v, f"{where}[{k!r}]")] for k, v in value.items()]}

    def _deque(self, value: Any, where: str) -> Any:
        return {"deque": [self(item, where) for item in value], "maxlen": value.maxlen}

    def _container(self, value: Any, where: str) -> Any:
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return {type(value).__name__: [self(item, f"{where}[{i}]") for i, item in enumerate(items)]}


ENCODERS: dict[type, Callable[[Writer, Any, str], Any]] = {
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


def _module(value: Any) -> str:
    return type(value).__module__


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _parts(space: Any) -> list[Any]:
    """The space and those inside it: each may draw numbers of its own."""
    inner = getattr(space, "spaces", ())
    children = inner.values() if hasattr(inner, "values") else inner
    return [space, *(part for child in children for part in _parts(child))]


def _encoder(value: Any) -> Callable[[Writer, Any, str], Any] | None:
    if isinstance(value, gymnasium.Space):
        return Writer._space
    if _class(value) == simulation.CLASS:
        return Writer._simulation
    return Writer._scalar if isinstance(value, np.generic) else ENCODERS.get(type(value))


MISSING = object()
KEPT = ("constant", "space", "simulation")
"""Kinds whose object stays the environment's own."""


class Reader:
    """Makes the values `Writer` wrote; `present` is what stands in their place now, and stays where they are constant."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self.arrays = arrays
        self._made: list[Any] = []

    def __call__(self, code: Any, present: Any = MISSING) -> Any:
        """The value.

        Raises:
            ArtifactError: not something `Writer` writes, or a constant the environment does not have.
        """
        if type(code) in JSON_SCALARS:
            return code
        if not isinstance(code, dict) or not code:
            raise ArtifactError(f"the file is damaged: an environment's state holds {code!r}")
        kind = next(iter(code))
        if kind in KEPT and present is MISSING:
            raise ArtifactError("the state in the file belongs to an environment made otherwise")
        if kind == "constant":
            return present
        if kind == "float":
            return float.fromhex(code["float"])
        if kind == "same":
            return self._made[code["same"]]
        place = len(self._made)
        self._made.append(None)
        self._made[place] = value = READERS[kind](self, code, present)
        return value

    def _array(self, code: dict[str, Any], present: Any = None) -> Any:
        dtype = np.dtype(code["dtype"])
        if dtype.hasobject:
            raise ArtifactError("the file is damaged: an environment's state holds an array of objects")
        return self.arrays[code["array"]].view(dtype).reshape(code["shape"]).copy()

    def _scalar(self, code: dict[str, Any], present: Any) -> Any:
        return self._array(code["scalar"])[()]

    def _tensor(self, code: dict[str, Any], present: Any) -> Any:
        return torch.from_numpy(self._array(code["tensor"]))

    def _space(self, code: dict[str, Any], present: Any) -> Any:
        for part, generator in zip(_parts(present), map(self, code["space"]), strict=True):
            part._np_random = generator
        return present

    def _generator(self, code: dict[str, Any], present: Any) -> Any:
        state = self(code["generator"])
        made = BIT_GENERATORS[state["bit_generator"]]()
        made.state = state
        return np.random.Generator(made)

    def _legacy(self, code: dict[str, Any], present: Any) -> Any:
        made = np.random.RandomState()
        made.set_state(self(code["legacy"]))
        return made

    def _python_random(self, code: dict[str, Any], present: Any) -> Any:
        made = random.Random()  # noqa: S311  # the environment's own
        made.setstate(self(code["random"]))
        return made

    def _torch_generator(self, code: dict[str, Any], present: Any) -> Any:
        made = torch.Generator()
        made.set_state(torch.from_numpy(self._array(code["torch"])))
        return made

    def _simulation(self, code: dict[str, Any], present: Any) -> Any:
        stored, known = code["simulation"], set(simulation.fields(present))
        present.time = float.fromhex(stored["time"])
        for name, array in stored["fields"].items():
            if name in known:
                getattr(present, name)[...] = self._array(array)
        return present

    def _dict(self, code: dict[str, Any], present: Any) -> Any:
        known, made = present if isinstance(present, dict) else {}, {}
        for key_code, value in code["dict"]:
            key = self(key_code)
            made[key] = self(value, known.get(key, MISSING))
        return made

    def _deque(self, code: dict[str, Any], present: Any) -> Any:
        return deque(map(self, code["deque"]), code["maxlen"])

    def _container(self, code: dict[str, Any], present: Any) -> Any:
        ((kind, items),) = code.items()
        fits = isinstance(present, list | tuple) and len(present) == len(items)
        known = present if fits else [MISSING] * len(items)
        return CONTAINERS[kind](self(item, own) for item, own in zip(items, known, strict=True))


READERS: dict[str, Callable[[Reader, dict[str, Any], Any], Any]] = {
    "array": Reader._array,
    "scalar": Reader._scalar,
    "tensor": Reader._tensor,
    "space": Reader._space,
    "generator": Reader._generator,
    "legacy": Reader._legacy,
    "random": Reader._python_random,
    "torch": Reader._torch_generator,
    "simulation": Reader._simulation,
    "dict": Reader._dict,
    "deque": Reader._deque,
    **dict.fromkeys(CONTAINERS, Reader._container),
}
