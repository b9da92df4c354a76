"""Switches kernels on and off.

With the environment variable `RLSDK_KERNELS=off`, or inside `with kernels_off():`, torch computes everything. With
`RLSDK_KERNELS=uncompiled`, or inside `with compiled_off():`, there is no compiled code. Packages that offer kernels
(`rlsdk.kernels.table`) obey it. `RLSDK_PLUGINS` does not hide them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rlsdk.errors import SettingsError, suggest

VARIABLE = "RLSDK_KERNELS"


STATES = ("on", "uncompiled", "off")


def _as_state(value: str) -> str:
    """Raises SettingsError if the value is none of `STATES`."""
    if value not in STATES:
        raise SettingsError(f"the environment variable {VARIABLE} is {value!r}; {suggest(value, STATES)}")
    return value


kernel_states = [_as_state(os.environ.get(VARIABLE, "on"))]
"""What is on; the last one counts: `on`, `uncompiled` (numpy and torch), or `off` (torch). Every update reads it, so it is no
function. Only this module changes it."""


def kernels_off() -> AbstractContextManager[None]:
    """Networks created inside the `with` block, and losses computed inside it, use torch's modules and autograd."""
    return _inside("off")


def compiled_off() -> AbstractContextManager[None]:
    """Kernels made inside the `with` block use numpy and torch, as in an installation without compiled code."""
    return _inside("off" if kernel_states[-1] == "off" else "uncompiled")


@contextmanager
def _inside(state: str) -> Iterator[None]:
    kernel_states.append(state)
    try:
        yield
    finally:
        kernel_states.pop()
