"""Switches kernels on and off.

With the environment variable `RLSDK_KERNELS=off`, or inside `with kernels_off():`, torch computes everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from rlsdk.errors import SettingsError, suggest
from rlsdk.kernels.hooks import KNOWN

VARIABLE = "RLSDK_KERNELS"


def _as_switch(value: str) -> bool:
    """Raises SettingsError if the value is neither on nor off."""
    if value not in ("on", "off"):
        raise SettingsError(f"the environment variable {VARIABLE} is {value!r}; {suggest(value, ('on', 'off'))}")
    return value == "on"


_on = [_as_switch(os.environ.get(VARIABLE, "on"))]


@contextmanager
def kernels_off() -> Iterator[None]:
    """Networks created inside the `with` block, and losses computed inside it, use torch's modules and autograd."""
    _on.append(False)
    try:
        yield
    finally:
        _on.pop()


@cache
def exists(module: str) -> bool:
    """Whether `rlsdk.kernels` contains this module."""
    try:
        return find_spec(f"rlsdk.kernels.{module}") is not None
    except ModuleNotFoundError:
        return False


def may_use(module: str) -> bool:
    """Whether kernels are on, support this version of torch, and are installed."""
    return _on[-1] and KNOWN and exists(module)


def is_on() -> bool:
    """Whether kernels are on."""
    return _on[-1]
