"""The range of SDK versions that a plugin states, against the SDK that runs, and what to install where they do not fit."""

from __future__ import annotations

import shlex
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING

from rlsdk.errors import shown

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SDK = "rlsdk"
REGISTERED = "registered"
"""In place of a distribution: the plugin was registered in this process, and no package can be installed."""


@cache
def sdk_version() -> str:
    """The version of rlsdk that runs. It cannot change while it runs, and takes 1 ms to read."""
    try:
        return version(SDK)
    except PackageNotFoundError:  # its sources, not installed
        found: str = sys.modules[SDK].__version__
        return found


def misfit(stated: str, here: str, distribution: str) -> str | None:
    """Why a plugin of `distribution` that states the range `stated` cannot be used with version `here`; None where it can."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(stated)
    except InvalidSpecifier:
        return f"its manifest's sdk = {shown(stated, 60)} is not a version range; write for example '>=0.1,<0.2'"
    if wanted.contains(here, prereleases=True):
        return None
    other_sdk = f"pip install {shlex.quote(SDK + stated)}"
    if _is_newer(wanted, here):
        fix = f"install a newer SDK: {other_sdk}"
    elif distribution == REGISTERED:
        fix = f"install an older SDK: {other_sdk}"
    else:
        newer_plugin = f"pip install --upgrade {shlex.quote(distribution)}"
        fix = f"install a newer version of the plugin: {newer_plugin}, or an older SDK: {other_sdk}"
    return f"it needs {SDK} {stated}, installed is {here}; {fix}"


def _is_newer(wanted: SpecifierSet, here: str) -> bool:
    """Whether a range begins above the version `here`."""
    from packaging.version import InvalidVersion, Version

    lower_bounds = [each.version.removesuffix(".*") for each in wanted if each.operator in (">=", ">", "~=", "==")]
    try:
        return any(Version(bound) > Version(here) for bound in lower_bounds)
    except InvalidVersion:
        return False


def is_missing_from_sdk(error: BaseException) -> bool:
    """Whether an error is about a module or name that rlsdk does not have."""
    if isinstance(error, ImportError):
        place = error.name or ""
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        place = error.obj.__name__
    else:
        return False
    return place.partition(".")[0] == SDK


def fix_for_missing(stated: str, distribution: str) -> str:
    """What to install where a plugin whose range fits imports what this SDK does not have."""
    packages = SDK if distribution == REGISTERED else f"{SDK} {shlex.quote(distribution)}"
    return (
        f"; its range is {SDK} {stated}, and {SDK} {sdk_version()} has no such name; "
        f"install versions that fit each other: pip install --upgrade {packages}"
    )
