"""Encodes values of environments as JSON and arrays: numbers, texts, containers, arrays and random generators.

If two attributes refer to the same object, they refer to the same object again after decoding.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import name_of_class
from rlsdk.environments.states import generators
from rlsdk.environments.states.generators import GENERATORS, MAKERS
from rlsdk.errors import ArtifactError
from rlsdk.runtime.files import may_be_place

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
            raise OpaqueValue(f"{where} is a {name_of_class(type(value))}")
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

    def _generator(self, value: object, where: str) -> dict[str, object]:
        kind, read = GENERATORS[type(value)]
        state = read(value)
        return {kind: self._array(state, where) if isinstance(state, np.ndarray) else self(state, where)}

    def _space(self, value: object, where: str) -> dict[str, object]:
        return {"space": [self(vars(part).get("_np_random"), where) for part in parts_of(value)]}

    def _simulation(self, value: Any, where: str) -> dict[str, object]:
        sizes, found = generators.gathered(value)
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
    **dict.fromkeys(GENERATORS, Writer._generator),
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
        or name_of_class(type(value)) in CONSTANT_CLASSES
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
    if name_of_class(type(value)) == generators.CLASS:
        return Writer._simulation
    return Writer._scalar if isinstance(value, np.generic) else ENCODERS.get(type(value))


# Decodes values that `Writer` encoded.
#
# They may come from a file, so all of them are checked before numpy, torch or mujoco get them.

MISSING = object()
SHARED = ("constant", "space", "simulation")
"""Kinds of values for which the object of the environment is used, not a new one."""
DTYPE = re.compile(r"[<>|=][biufcmMSU]\d{1,6}(\[\d*[a-zA-Zμ]{1,3}\])?")
MAX_KEY = 10_000
"""The largest number of values in a key of a dict or an item of a set."""
MAX_CODE_POINT = 0x10FFFF


class Reader:
    """Decodes values that `Writer` encoded. `arrays` are the stored arrays of bytes."""

    def __init__(self, arrays: list[NDArray[np.generic]]) -> None:
        self.arrays: list[NDArray[np.generic] | None] = [*arrays]
        self._made: list[object] = []

    def __call__(self, code: object, present: object = MISSING) -> Any:
        """Decode a value.

        Args:
            code: the JSON that `Writer` made of the value.
            present: the present value of the attribute, which is returned for a constant; `MISSING` if there is none.

        Raises:
            ArtifactError: `Writer` does not write such a code, or the environment lacks a constant.
        """
        if type(code) in JSON_SCALARS:
            return code
        if not isinstance(code, dict) or not code:
            raise _damaged(repr(code)[:80])
        kind = next(iter(code))
        if kind in SHARED and present is MISSING:
            raise ArtifactError("the state in the file belongs to a differently configured environment")
        if kind == "constant":
            return present
        if kind == "float":
            return float.fromhex(code["float"])
        if kind == "same":
            return self._again(code["same"])
        if kind not in READERS:
            raise _damaged(f"a value of kind {kind!r}")
        place = len(self._made)
        self._made.append(MISSING)
        self._made[place] = value = READERS[kind](self, code, present)
        return value

    def _again(self, place: object) -> object:
        if type(place) is not int or not 0 <= place < len(self._made) or self._made[place] is MISSING:
            raise _damaged(f"a reference to value {place!r}")
        return self._made[place]

    def _array(self, code: dict[str, Any], present: object = None) -> NDArray[np.generic]:
        number, name, shape = code["array"], code["dtype"], code["shape"]
        if type(number) is not int or not 0 <= number < len(self.arrays):
            raise _damaged(f"array number {number!r}")
        stored, self.arrays[number] = self.arrays[number], None
        if stored is None:
            raise _damaged(f"array number {number} twice")
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise _damaged(f"an array of dtype {name!r}")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise _damaged(f"an array of shape {shape!r}")
        dtype = np.dtype(name)
        if dtype.itemsize * math.prod(shape) != stored.size:
            raise _damaged(f"an array of shape {shape} and dtype {name} in {stored.size} bytes")
        if dtype.kind == "b" and stored.size and stored.max() > 1:
            raise _damaged("truth values that are neither 0 nor 1")
        if dtype.kind == "U" and stored.size and stored.view(dtype.byteorder + "u4").max() > MAX_CODE_POINT:
            raise _damaged("texts with impossible characters")
        return stored.view(dtype).reshape(shape).copy()

    def _scalar(self, code: dict[str, Any], present: object) -> object:
        value = self._array(code["scalar"])
        if value.shape != ():
            raise _damaged("an array where a number is due")
        return value[()]

    def _tensor(self, code: dict[str, Any], present: object) -> torch.Tensor:
        return torch.from_numpy(self._array(code["tensor"]))

    def _space(self, code: dict[str, Any], present: object) -> object:
        if not isinstance(present, gymnasium.Space):
            raise _damaged("a space where the environment has none")
        found = [self(part) for part in code["space"]]
        if not all(part is None or isinstance(part, np.random.Generator) for part in found):
            raise _damaged("a space without a generator")
        for part, generator in zip(parts_of(present), found, strict=True):
            part._np_random = generator
        return present

    def _generator(self, code: dict[str, Any], present: object) -> object:
        ((kind, state),) = code.items()
        return MAKERS[kind](self._array(state) if kind == "torch" else self(state))

    def _simulation(self, code: dict[str, Any], present: object) -> object:
        stored = code["simulation"]
        found = self._array(stored["values"])
        generators.put_back(present, float.fromhex(stored["time"]), dict(stored["sizes"]), found)
        return present

    def _dict(self, code: dict[str, Any], present: object) -> dict[Hashable, object]:
        known, made = present if isinstance(present, dict) else {}, {}
        for key_code, value in code["dict"]:
            key = _hashable(self(key_code))
            made[key] = self(value, known.get(key, MISSING))
        return made

    def _deque(self, code: dict[str, Any], present: object) -> deque[object]:
        length = code["maxlen"]
        if isinstance(present, deque) and present.maxlen != length:
            raise _damaged(f"a deque of {length!r} items, where the environment has one of {present.maxlen}")
        return deque(map(self, code["deque"]), length)

    def _container(self, code: dict[str, Any], present: Any) -> object:
        ((kind, items),) = code.items()
        fits = isinstance(present, list | tuple) and len(present) == len(items)
        known = present if fits else [MISSING] * len(items)
        made = (self(item, own) for item, own in zip(items, known, strict=True))
        return CONTAINERS[kind](map(_hashable, made) if kind.endswith("set") else made)


READERS: dict[str, Callable[[Reader, dict[str, Any], object], object]] = {
    "array": Reader._array,
    "scalar": Reader._scalar,
    "tensor": Reader._tensor,
    "space": Reader._space,
    **dict.fromkeys(MAKERS, Reader._generator),
    "simulation": Reader._simulation,
    "dict": Reader._dict,
    "deque": Reader._deque,
    **dict.fromkeys(CONTAINERS, Reader._container),
}


def _hashable(value: object) -> Hashable:
    """The value itself. Raises ArtifactError if it consists of too many values.

    The limit is needed because hashing nested tuples that repeat the same tuples can take exponential time.
    """
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > MAX_KEY:
            raise _damaged("a key that is made of too many values")
        if isinstance(item, tuple | frozenset):
            pending.extend(item)
    return value


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"the file is damaged: an environment's state holds {what}")


NUMBERS = (bool, int, float, complex, np.generic)
TEXTS = (str, bytes)
SEQUENCES = (list, tuple, np.ndarray, deque, torch.Tensor)


def require_fit(where: str, value: object, present: object, *, assigned: bool) -> None:
    """Raises ArtifactError unless `value` may replace `present` as the value of the attribute `where`.

    Args:
        where: the name of the attribute for the message.
        value: the value from the file.
        present: the present value; `MISSING` if the attribute does not exist yet.
        assigned: whether code of the environment assigns the attribute. Then it may change between numbers, sequences and
            arrays. Otherwise type, shape and dtype must stay the same.
    """
    if _stays(present) or _stays(value):
        fits = value is present
    elif present is MISSING or present is None or value is None:
        fits = assigned or present is value
    else:
        fits = _alike(value, present) if assigned else _same_kind(value, present)
    if not fits:
        raise ArtifactError(
            f"the file is damaged, or of a differently configured environment: {where} is {_named(present)} here, and"
            f" {_named(value)} in the file"
        )


def _stays(value: object) -> bool:
    """Whether a value is a constant, a space or a simulation. The environment's object of this kind is never replaced."""
    return is_constant(value) or isinstance(value, gymnasium.Space) or name_of_class(type(value)) == generators.CLASS


def _named(value: object) -> str:
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return "nothing" if value is MISSING else f"a {type(value).__name__}{shape}"


def _alike(value: object, present: object) -> bool:
    if isinstance(value, np.ndarray) and isinstance(present, np.ndarray):
        return value.ndim == present.ndim and _numeric(value) == _numeric(present)
    if isinstance(value, TEXTS) or isinstance(present, TEXTS):
        return isinstance(value, TEXTS) and isinstance(present, TEXTS)
    data = (*NUMBERS, *SEQUENCES)
    if isinstance(value, data) and isinstance(present, data):
        return True
    return _same_kind(value, present)


def _numeric(array: NDArray[np.generic]) -> bool:
    return array.dtype.kind in "biufc"


def _same_kind(value: object, present: object) -> bool:
    if isinstance(present, np.random.Generator) and isinstance(value, np.random.Generator):
        return type(value.bit_generator) is type(present.bit_generator)
    if isinstance(present, np.ndarray) and isinstance(value, np.ndarray):
        return bool(value.shape == present.shape and value.dtype == present.dtype)
    return type(value) is type(present)


def may_name_place(name: str, value: object, present: object) -> bool:
    """Whether `value` contains a text that may be the name of a file or folder and that is not in `present`.

    `name` is the name of the attribute that would get the value.
    """
    known = set(texts_in(present))
    return any(text not in known and may_be_place(name, text) for text in texts_in(value))


def texts_in(value: object) -> Iterator[str]:
    """Yield every text inside a value: in containers, and in arrays of texts."""
    pending, seen = [value], set[int]()
    while pending:
        item = pending.pop()
        if isinstance(item, str | np.str_):
            yield str(item)
        elif isinstance(item, bytes | np.bytes_):
            yield bytes(item).decode("latin-1")
        elif isinstance(item, np.ndarray) and item.dtype.kind in "SU":
            pending.extend(np.unique(item).tolist())
        elif isinstance(item, dict | list | tuple | set | frozenset | deque) and id(item) not in seen:
            seen.add(id(item))
            pending.extend((*item, *item.values()) if isinstance(item, dict) else item)
