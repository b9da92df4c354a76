"""Decodes values that `Writer` encoded.

They may come from a file, so all of them are checked before numpy, torch or mujoco get them.
"""

from __future__ import annotations

import math
import random
import re
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.states import generators, simulation
from rlsdk.environments.states.values import CONTAINERS, JSON_SCALARS, parts_of
from rlsdk.errors import ArtifactError
from rlsdk.runtime.stored import put_back

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
            raise ArtifactError("the state in the file belongs to an environment made otherwise")
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

    def _generator(self, code: dict[str, object], present: object) -> np.random.Generator:
        return generators.numpy_generator(self(code["generator"]))

    def _legacy(self, code: dict[str, object], present: object) -> np.random.RandomState:
        return generators.legacy_generator(self(code["legacy"]))

    def _python_random(self, code: dict[str, object], present: object) -> random.Random:
        return generators.python_generator(self(code["random"]))

    def _torch_generator(self, code: dict[str, Any], present: object) -> torch.Generator:
        made = torch.Generator()
        put_back(made, torch.from_numpy(self._array(code["torch"])))
        return made

    def _simulation(self, code: dict[str, Any], present: object) -> object:
        stored = code["simulation"]
        found = self._array(stored["values"])
        simulation.put_back(present, float.fromhex(stored["time"]), dict(stored["sizes"]), found)
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
    "generator": Reader._generator,
    "legacy": Reader._legacy,
    "random": Reader._python_random,
    "torch": Reader._torch_generator,
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
