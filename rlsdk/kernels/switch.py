"""Switches kernels on and off.

With the environment variable `RLSDK_KERNELS=off`, or inside `with kernels_off():`, torch computes everything. With
`RLSDK_KERNELS=uncompiled`, or inside `with compiled_off():`, there is no compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.util import find_spec

from rlsdk.errors import SettingsError, suggest
from rlsdk.kernels.hooks import KNOWN

VARIABLE = "RLSDK_KERNELS"


STATES = ("on", "uncompiled", "off")


def _as_state(value: str) -> str:
    """Raises SettingsError if the value is none of `STATES`."""
    if value not in STATES:
        raise SettingsError(f"the environment variable {VARIABLE} is {value!r}; {suggest(value, STATES)}")
    return value


_states = [_as_state(os.environ.get(VARIABLE, "on"))]


def kernels_off() -> AbstractContextManager[None]:
    """Networks created inside the `with` block, and losses computed inside it, use torch's modules and autograd."""
    return _inside("off")


def compiled_off() -> AbstractContextManager[None]:
    """Kernels made inside the `with` block use numpy and torch, as in an installation without compiled code."""
    return _inside("off" if _states[-1] == "off" else "uncompiled")


@contextmanager
def _inside(state: str) -> Iterator[None]:
    _states.append(state)
    try:
        yield
    finally:
        _states.pop()


@cache
def exists(module: str) -> bool:
    """Whether `rlsdk.kernels` contains this module."""
    try:
        return find_spec(f"rlsdk.kernels.{module}") is not None
    except ModuleNotFoundError:
        return False


def may_use(module: str) -> bool:
    """Whether kernels are on, support this version of torch, and are installed."""
    return is_on() and KNOWN and exists(module)


def state() -> str:
    """Return what is on, one of `STATES`."""
    return _states[-1]


def is_on() -> bool:
    """Whether kernels are on."""
    return _states[-1] != "off"


def may_compile() -> bool:
    """Whether kernels may use compiled code, and this installation has it for the processor."""
    return _states[-1] == "on" and KNOWN and _has_library()


@cache
def _has_library() -> bool:
    if not exists("compiled_library"):
        return False
    from rlsdk.kernels.compiled_library import library

    return library() is not None
