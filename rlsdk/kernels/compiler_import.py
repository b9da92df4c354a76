"""Creates and steps torch's optimisers without importing torch's compiler.

torch excludes optimisers from compilation. For that it imports its compiler when the first optimiser is created or
makes a step, which takes two seconds. If the compiler is already imported, the functions here do the same as torch.
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
"""torch calls the function in this attribute. Without the attribute it imports its compiler to create the function."""
HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
GLOBAL_HOOKS = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
_LOCK = threading.Lock()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Optimisers created inside the `with` block do not import torch's compiler."""
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
    """Call `made.step()`. For torch's own classes, torch's compiler is not imported."""
    kind = type(made)
    if COMPILER in sys.modules or not kind.__module__.startswith("torch.optim.") or _is_watched(made):
        made.step()
        return
    with torch.no_grad():
        inspect.unwrap(kind.step)(made)


def _is_watched(made: Optimizer) -> bool:
    """Whether a step does more than the arithmetic: hooks, a learning-rate schedule of torch, or gradients through the step."""
    hooks = [getattr(made, name, True) for name in HOOKS] + [getattr(optimizer, name, True) for name in GLOBAL_HOOKS]
    return any(hooks) or "step" in vars(made) or made.defaults.get("differentiable", True)
