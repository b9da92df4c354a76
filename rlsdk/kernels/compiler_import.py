"""torch's optimisers without its compiler.

torch keeps optimisers out of what it compiles, and imports its compiler for that when the first one is made or steps. The
import takes two seconds, and is not needed where nothing is compiled. Where it is imported, nothing here differs from torch.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim import Optimizer, optimizer

COMPILER = "torch._dynamo"
MARK = "__dynamo_disable"
"""torch calls what it finds under this name, or imports its compiler to make it."""
HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
GLOBAL_HOOKS = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
_LOCK = threading.Lock()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Inside the block, an optimiser is made without importing torch's compiler."""
    function = getattr(Optimizer.add_param_group, "__wrapped__", None)
    with _LOCK:
        if function is None or COMPILER in sys.modules or hasattr(function, MARK):
            yield
            return
        setattr(function, MARK, function)
        try:
            yield
        finally:
            delattr(function, MARK)


def step(made: Optimizer) -> None:
    """`made.step()`, for torch's own classes without importing torch's compiler."""
    kind = type(made)
    if COMPILER in sys.modules or not kind.__module__.startswith("torch.optim.") or _is_watched(made):
        made.step()
        return
    with torch.no_grad():
        inspect.unwrap(kind.step)(made)


def _is_watched(made: Optimizer) -> bool:
    """Whether there is more to a step than the arithmetic: hooks, a schedule of torch, gradients through it."""
    hooks = [getattr(made, name, True) for name in HOOKS] + [getattr(optimizer, name, True) for name in GLOBAL_HOOKS]
    return any(hooks) or "step" in vars(made) or made.defaults.get("differentiable", True)
