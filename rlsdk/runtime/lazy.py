"""Imports public names at their first use, and asks the package rlsdk-sb3 for names that only stable-baselines3 has.

The package is imported at the first use of such a name. `of_sb3` is the only way to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from rlsdk.errors import UnknownAttributeError, UnknownNameError

_LINE = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)
_ALIAS = re.compile(r"^(\w+) = (\w+)$", re.MULTILINE)


def attach(
    package: str, file: str, further: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` (PEP 562) of a package whose public names stand in its `__init__.pyi`.

    Type checkers read the same file, so each name is listed once. A name is imported at its first use.

    Args:
        package: `__name__` of the package.
        file: `__file__` of the package.
        further: names that are not listed -> their module, or a package that may be absent by the name that pip takes.
    """
    absent = names_elsewhere(package)

    @cache
    def homes() -> dict[str, tuple[str, str]]:
        """Public name -> the module that defines it, and its name there."""
        # By patterns: parsing the file as Python takes ten times as long.
        text = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
        found = {name: (module, name) for module, name in _LINE.findall(text)}
        return found | {alias: found[name] for alias, name in _ALIAS.findall(text)}

    def load(name: str) -> object:
        if name == "__all__":
            return sorted(homes())
        # Python and its tools ask every module for names such as __path__.
        if name.startswith("__") or (name not in homes() and name not in further):
            return absent(name)
        module, attribute = homes().get(name) or (further[name], name)
        value: object = getattr(of_package(module, name) if "-" in module else import_module(module), attribute)
        # Python then finds the name by itself, and does not call this function again.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes()})

    return load, names


def of_package(package: str, wanted: str) -> ModuleType:
    """Import a package of this project by the name that pip takes, such as rlsdk-envs, for the documented name `wanted` in it.

    Raises:
        UnknownNameError: it is not installed; the message has the command that installs it.
    """
    # for the message alone
    from rlsdk.runtime.packages import pip_install

    if not is_installed(package):
        raise UnknownNameError(f"{wanted} is in {package}, which is not installed: {pip_install(package)}", name=wanted)
    return import_module(package.replace("-", "_"))


def is_installed(package: str) -> bool:
    """Whether a package of this project is installed, by the name that pip takes. It is not imported."""
    return find_spec(package.replace("-", "_")) is not None


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
