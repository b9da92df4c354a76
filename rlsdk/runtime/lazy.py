"""Import the public names of a package at their first use, so that importing the package takes little time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from rlsdk.runtime.documented_names import names_elsewhere


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` (PEP 562) of a package whose public names are the keys of `homes`.

    A value of `homes` is the module that defines the name, or `module:attribute` if the attribute has another name there, or
    `module:` for the module itself.
    """

    absent = names_elsewhere(package)

    def load(name: str) -> object:
        if name not in homes:
            absent(name)
        module, colon, attribute = homes[name].partition(":")
        found = import_module(module)
        value: object = found if colon and not attribute else getattr(found, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
