"""Compiled forms of hot functions, used with `learn(compile="default")`.

torch.compile takes half a minute where nothing lies in its cache on disk (`TORCHINDUCTOR_CACHE_DIR`) and some seconds where
it does, so it pays off in long runs only and is off by default.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from rlsdk.errors import SettingsError

MODES = {"off": "", "default": "default", "max": "max-autotune-no-cudagraphs"}
"""Our names and torch's. CUDA graphs write results into the same memory every time, and metrics are read later."""
Function = Callable[..., Any]

_mode: ContextVar[str] = ContextVar("compile", default="off")
_forms: dict[tuple[str, Function], Function | None] = {}


def require_mode(mode: str) -> None:
    """Raises SettingsError: there is no such mode."""
    if mode not in MODES:
        raise SettingsError(f"compile: there is no mode {mode!r}; use one of {', '.join(MODES)}")


@contextmanager
def compiling(mode: str) -> Iterator[None]:
    """Hot functions run compiled inside the block, unless `mode` is "off".

    Raises:
        SettingsError: there is no such mode.
    """
    require_mode(mode)
    before = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(before)


def compiled(function: Function) -> Function | None:
    """The compiled form of a pure function of tensors; None if compilation is off, or if it cannot be compiled.

    Inside somebody's own compilation it is the function itself.
    """
    if torch.compiler.is_compiling():
        return function
    mode = _mode.get()
    if mode == "off":
        return None
    if (mode, function) not in _forms:
        _forms[mode, function] = _guarded(function, mode)
    return _forms[mode, function]


def _guarded(function: Function, mode: str) -> Function:
    """The compiled function; falls back to `function` with one warning if the compilation fails."""
    form = torch.compile(function, fullgraph=True, dynamic=False, mode=MODES[mode])

    def call(*args: object) -> Any:
        try:
            return form(*args)
        except Exception as error:
            result = function(*args)  # where the arguments are to blame this raises
            _forms[mode, function] = None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            warnings.warn(f"{function.__name__} continues without torch.compile, which failed: {reason}", stacklevel=2)
            return result

    return call
