"""Finds the attributes of an environment that are its state, as opposed to those of its construction.

An attribute belongs to the construction if only `__init__` assigns it and its value is immutable. Examples are the limit of a
`TimeLimit` and the folder of a `RecordVideo`. Such an attribute is not stored in a file, and a file cannot change it.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterable, Iterator
from types import CodeType

import numpy as np

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
