"""Selects compiled code for action values."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlsdk.kernels.switch import may_compile

if TYPE_CHECKING:
    from rlsdk.kernels.compiled_values import CompiledValues


def compiled_for(*tensors: Tensor | None) -> CompiledValues | None:
    """Return compiled functions for these tensors [..]; None if torch must compute, for example on a GPU or for autograd."""
    for tensor in tensors:
        if tensor is not None and not (
            type(tensor) is Tensor
            and tensor.dtype is torch.float32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.requires_grad
        ):
            return None
    return _compiled() if may_compile() and not torch.compiler.is_compiling() else None


@cache
def _compiled() -> CompiledValues:
    from rlsdk.kernels.compiled_values import CompiledValues

    return CompiledValues()
