"""Imports public names at their first use, and asks the package rlsdk-sb3 for names that only stable-baselines3 has.

The package is imported at the first use of such a name. `of_sb3` is the only way to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rlsdk.errors import UnknownAttributeError, UnknownNameError

__all__ = [
    "attach",
]


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` (PEP 562) of a package whose public names are the keys of `homes`.

    A value of `homes` is the module that defines the name, or `module:attribute` if the attribute has another name there, or
    `module:` for the module itself. A home such as rlsdk-envs is the package that pip calls so. Its names are not listed:
    it may be absent.
    """

    absent = names_elsewhere(package)

    def load(name: str) -> object:
        if name not in homes:
            return absent(name)
        module, colon, attribute = homes[name].partition(":")
        found = of_package(module, name) if "-" in module else import_module(module)
        value: object = found if colon and not attribute else getattr(found, attribute or name)
        # Python then finds the name by itself, and does not call this function again.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *(name for name, home in homes.items() if "-" not in home)})

    return load, names


def of_package(package: str, wanted: str) -> ModuleType:
    """Import a package of this project by the name that pip takes, such as rlsdk-envs, for the documented name `wanted` in it.

    Raises:
        UnknownNameError: it is not installed; the message has the command that installs it.
    """
    # for the message alone
    from rlsdk.runtime.packages import pip_install

    name = package.replace("-", "_")
    if find_spec(name) is None:
        raise UnknownNameError(f"{wanted} is in {package}, which is not installed: {pip_install(package)}", name=wanted)
    return import_module(name)


def of_sb3(name: str, what: str) -> Any:
    """The member `name` of the package rlsdk-sb3, which has the names and shapes of stable-baselines3; `what` needs it.

    Raises:
        UnknownNameError: the package is not installed; the message has the command that installs it.
    """
    return getattr(of_package("rlsdk-sb3", what), name)


def known_elsewhere(owner: object, name: str) -> object:
    """What stable-baselines3 calls `name` in `owner`, an object or module that lacks it; `NotImplemented`: nothing.

    Raises:
        UnknownAttributeError, UnknownNameError: the name has no counterpart; the message names what to use instead.
    """
    if name.startswith("__"):
        # Python itself looks for these, in every copy and import
        return NotImplemented
    try:
        known = of_sb3("known", name)
    except UnknownNameError:
        return NotImplemented
    return known(owner, name)


def elsewhere(owner: object, name: str) -> object:
    """The `__getattr__` of objects: what stable-baselines3 calls `name`, or an UnknownAttributeError."""
    if (found := known_elsewhere(owner, name)) is NotImplemented:
        hint = "" if name.startswith("__") else where_sb3_is()
        raise UnknownAttributeError(f"{type(owner).__name__} has no attribute {name!r}{hint}")
    return found


def where_sb3_is() -> str:
    """The end of a message about an unknown name: the package that may know it, where that is not installed."""
    try:
        of_sb3("known", "what only stable-baselines3 documents")
    except UnknownNameError as missing:
        return f"; {missing}"
    return ""


def advice_of_sb3(topic: str, name: str) -> str:
    """What replaces an attribute, argument or class of stable-baselines3, for a message; "" for other names."""
    try:
        advice = of_sb3("advice", name)
    except UnknownNameError:
        return ""
    return str(advice(topic, name))


def names_elsewhere(package: str) -> Callable[[str], object]:
    """The `__getattr__` (PEP 562) of a package: names of stable-baselines3 raise UnknownNameError, others AttributeError."""

    def absent(name: str) -> object:
        module: ModuleType = sys.modules[package]
        # `from package import module` asks the package before it imports the module
        is_module = not name.startswith("_") and find_spec(f"{package}.{name}") is not None
        if is_module or (found := known_elsewhere(module, name)) is NotImplemented:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        return found

    return absent
