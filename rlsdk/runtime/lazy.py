"""Packages whose public names are imported on first use, so that looking at a package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a package whose name -> module table is `homes`.

    `homes` values are modules, or `module:attribute` where the attribute has another name there, or `module:` for the module.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        module, colon, attribute = homes[name].partition(":")
        found = import_module(module)
        value: object = found if colon and not attribute else getattr(found, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
