"""Returns in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.kernels import reference
from rlsdk.kernels.compiled_library import loaded_library


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    if value.dtype is not torch.float32 or weight.dtype is not torch.float32 or value.shape != weight.shape or value.ndim != 2:
        return reference.discounted_sums(value, weight)
    own, factors = value.detach().contiguous(), weight.detach().contiguous()
    sums = torch.empty_like(own)
    loaded_library().discounted_sums(own.data_ptr(), factors.data_ptr(), *own.shape, sums.data_ptr())
    return sums


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    if prediction.dtype is not torch.float32 or target.dtype is not torch.float32 or prediction.shape != target.shape:
        return reference.explained_variance(prediction, target)
    own, goal = prediction.detach().contiguous(), target.detach().contiguous()
    return own.new_tensor(loaded_library().explained_variance(own.data_ptr(), goal.data_ptr(), own.numel()))
