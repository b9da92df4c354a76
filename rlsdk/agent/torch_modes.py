"""Protects agents from global modes of torch such as autocast: they are switched off, or an error names the mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from rlsdk.errors import UsageError
from rlsdk.kernels import function_modes

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


def in_plain_modes(function: Callable[P, ResultT]) -> Callable[P, ResultT]:
    """A decorator that runs a function with gradients enabled, outside inference mode and autocast.

    Raises:
        UsageError: at a call, if new tensors of torch are not float32 on the CPU by default.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        require_defaults()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return run


def modes_are_plain() -> bool:
    """Whether `in_plain_modes` would change nothing and raise no error; inference mode and gradients are not considered."""
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return not autocast and torch.get_default_dtype() is torch.float32 and not function_modes()


def require_defaults() -> None:
    """Raise UsageError unless new tensors are float32 on the CPU by default."""
    if torch.get_default_dtype() is not torch.float32:
        raise UsageError(
            f"torch's default dtype is {torch.get_default_dtype()}, and agents compute in float32; call"
            " torch.set_default_dtype(torch.float32) first"
        )
    if torch.get_default_device().type != "cpu":
        raise UsageError(
            f"torch's default device is {torch.get_default_device()}; call torch.set_default_device('cpu') first, and give the"
            " agent its device: device='cuda'"
        )
