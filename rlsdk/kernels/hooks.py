"""Hooks and modes of torch that kernels would skip. torch has no public names for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(
    getattr(torch_module, f"_global{name}")
    for name in HOOKS
    if isinstance(getattr(torch_module, f"_global{name}", 0), dict)
)
function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
"""Returns the number of modes that intercept torch's functions (a default device is one); 1 if this torch does not
count them."""
KNOWN = hasattr(RemovableHandle, "next_id") and all(
    isinstance(getattr(nn.Module(), name, None), dict) for name in (*HOOKS, "_modules", "_parameters")
)
"""Whether this version of torch has the attributes that kernels read."""


def is_hooked(module: nn.Module) -> bool:
    """Whether the module has hooks, or a `forward` set on the instance."""
    return (
        bool(any(GLOBAL_HOOKS) or "forward" in vars(module))
        or not KNOWN
        or any(getattr(module, name) for name in HOOKS)
    )
