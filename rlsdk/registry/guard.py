"""Protects the host while a plugin is imported: output is captured, global random state and torch settings put back."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

TORCH_DEFAULT_SEED = 67280421310721


class PluginSideEffect(UserWarning):
    """A plugin did something at import that it must not do; the host was protected."""


def _snapshot() -> dict[str, Any]:
    """Global state a plugin could disturb, of the libraries that are loaded already."""
    state: dict[str, Any] = {"Python's random state": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        state["numpy's random state"] = (kind, keys.tobytes(), *rest)
    if torch := sys.modules.get("torch"):
        state["torch's random state"] = torch.random.get_rng_state().numpy().tobytes()
        state["torch's thread count"] = torch.get_num_threads()
        state["torch's default dtype"] = torch.get_default_dtype()
        state["torch's default device"] = str(torch.get_default_device())
    return state


def _restore(before: dict[str, Any], name: str) -> None:
    if name == "Python's random state":
        random.setstate(before[name])
    elif name == "numpy's random state":
        numpy = sys.modules["numpy"]
        kind, keys, *rest = before[name]
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))
    else:
        torch = sys.modules["torch"]
        if name == "torch's random state":
            torch.random.set_rng_state(torch.frombuffer(bytearray(before[name]), dtype=torch.uint8))
        elif name == "torch's thread count":
            torch.set_num_threads(before[name])
        elif name == "torch's default dtype":
            torch.set_default_dtype(before[name])
        else:
            torch.set_default_device(before[name])


def _new_torch_was_seeded(before: dict[str, Any]) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and "torch's random state" not in before and torch.initial_seed() != TORCH_DEFAULT_SEED


@contextlib.contextmanager
def protected(plugin: str) -> Iterator[list[str]]:
    """Runs the body; yields the list of side effects, filled on exit, each also warned about as `PluginSideEffect`."""
    before, output, effects = _snapshot(), io.StringIO(), list[str]()
    torch_loaded = "torch" in sys.modules
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            yield effects
    finally:
        after = _snapshot()
        for name in before:
            if before[name] != after[name]:
                _restore(before, name)
                effects.append(f"changed {name} (put back)")
        if _new_torch_was_seeded(before):
            sys.modules["torch"].manual_seed(TORCH_DEFAULT_SEED)
            effects.append("changed torch's random state (put back)")
        if not torch_loaded and "torch" in sys.modules:
            effects.append("imported torch, which makes every listing slow")
        if text := output.getvalue().strip():
            effects.append(f"printed {text[:80]!r}")
        for effect in effects:
            warnings.warn(f"plugin {plugin} {effect} while it was imported", PluginSideEffect, stacklevel=4)
