"""Imports public names at their first use, and asks other packages of this project for names that they have.

Such a package is imported at the first use of such a name. `of_package` is the only way to it, for rlsdk-sb3 as `of_sb3`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rlsdk.errors import UnknownAttributeError, UsageError

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
        if "-" in module:
            return of_package(module, name, name)
        found = import_module(module)
        value: object = found if colon and not attribute else getattr(found, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *(name for name, home in homes.items() if "-" not in home)})

    return load, names


def of_package(package: str, name: str, what: str) -> Any:
    """The member `name` of a package of this project, which is called by the name that pip takes, such as rlsdk-envs.

    Raises:
        UsageError: the package is not installed, or does not fit; the message begins with `what`, which needs it.
    """
    try:
        return getattr(import_module(package.replace("-", "_")), name)
    except ImportError as error:
        from rlsdk.runtime.packages import pip_install  # reads files, for this message only

        raise UsageError(f"{what} needs the package {package} ({error}): {pip_install(package)}") from None


of_sb3 = partial(of_package, "rlsdk-sb3")
"""`of_sb3(name, what)`: the member `name` of rlsdk-sb3, which has the names and shapes of stable-baselines3."""


def known_elsewhere(owner: object, name: str) -> object:
    """What stable-baselines3 calls `name` in `owner`, an object or module that lacks it; `NotImplemented`: nothing.

    Raises:
        UnknownAttributeError, UnknownNameError: the name has no counterpart; the message names what to use instead.
    """
    if name.startswith("__"):  # Python itself looks for these, in every copy and import
        return NotImplemented
    try:
        known = of_sb3("known", name)
    except UsageError:
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
        of_sb3("known", "; a name of stable-baselines3")
    except UsageError as missing:
        return str(missing)
    return ""


def advice_of_sb3(topic: str, name: str) -> str:
    """What replaces an attribute, argument or class of stable-baselines3, for a message; "" for other names."""
    try:
        advice = of_sb3("advice", name)
    except UsageError:
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
