"""Checks whether the running SDK is in a plugin's range of SDK versions, and names what to install if it is not."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING

from rlsdk.errors import shown
from rlsdk.runtime.pip_commands import pip_install

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SDK = "rlsdk"
REGISTERED = "registered"
"""The name used as distribution of plugins that were registered in this process. They have no package to install."""


@cache
def sdk_version() -> str:
    """Return the version of the running rlsdk. It is cached, because reading it takes 1 ms."""
    try:
        return version(SDK)
    except PackageNotFoundError:  # rlsdk is imported from its sources and not installed
        found: str = sys.modules[SDK].__version__
        return found


def misfit(stated: str, here: str, distribution: str) -> str | None:
    """Return why a plugin of `distribution` with the SDK range `stated` cannot be used with the SDK version `here`.

    None if it can be used.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(stated)
    except InvalidSpecifier:
        return f"its manifest's sdk = {shown(stated, 60)} is not a version range; write for example '>=0.1,<0.2'"
    if wanted.contains(here, prereleases=True):
        return None
    other_sdk = pip_install(SDK + stated)
    if _is_newer(wanted, here):
        fix = f"install a newer SDK: {other_sdk}"
    elif distribution == REGISTERED:
        fix = f"install an older SDK: {other_sdk}"
    else:
        newer_plugin = pip_install(distribution, options="--upgrade")
        fix = f"install a newer version of the plugin: {newer_plugin}, or an older SDK: {other_sdk}"
    return f"it needs {SDK} {stated}, installed is {here}; {fix}"


def _is_newer(wanted: SpecifierSet, here: str) -> bool:
    """Return whether the range `wanted` begins above the version `here`."""
    from packaging.version import InvalidVersion, Version

    lower_bounds = [each.version.removesuffix(".*") for each in wanted if each.operator in (">=", ">", "~=", "==")]
    try:
        return any(Version(bound) > Version(here) for bound in lower_bounds)
    except InvalidVersion:
        return False


def is_missing_from_sdk(error: BaseException) -> bool:
    """Return whether an error was raised because rlsdk does not have a module or name."""
    if isinstance(error, ImportError):
        place = error.name or ""
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        place = error.obj.__name__
    else:
        return False
    return place.partition(".")[0] == SDK


def fix_for_missing(stated: str, distribution: str) -> str:
    """Return what to install if a plugin imports something that this SDK does not have, although the SDK is in its range."""
    packages = (SDK,) if distribution == REGISTERED else (SDK, distribution)
    return (
        f"; its range is {SDK} {stated}, and {SDK} {sdk_version()} has no such name; "
        f"install versions that fit each other: {pip_install(*packages, options='--upgrade')}"
    )
