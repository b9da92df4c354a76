"""Steps of optimisers and the norm of gradients in compiled code, for one vector of float32 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from ctypes import byref

import torch
from torch import Tensor

from rlsdk.kernels.compiled_library import Adam, Rmsprop, loaded_library


def fits(vectors: Iterable[Tensor], size: int) -> bool:
    """Whether compiled code can read vectors [size]."""
    return all(v.dtype is torch.float32 and v.is_cpu and v.is_contiguous() and v.shape == (size,) for v in vectors)


def clip_norm(gradients: Tensor, max_norm: float) -> None:
    """Scale a gradient vector [D] down to the norm `max_norm`, in place."""
    loaded_library().clip_norm(gradients.data_ptr(), gradients.numel(), max_norm)


def rmsprop_step(values: Tensor, gradients: Tensor, square: Tensor, rate: float, alpha: float, eps: float) -> None:
    """Make the step of RMSprop; all vectors [D]."""
    addresses = values.data_ptr(), gradients.data_ptr(), square.data_ptr()
    loaded_library().rmsprop_step(*addresses, values.numel(), byref(Rmsprop(rate, alpha, 1 - alpha, eps)))


def adam_step(
    vectors: tuple[Tensor, Tensor, Tensor, Tensor],
    step: float,
    numbers: tuple[float, float, float, float, float],
    maximize: bool,
) -> None:
    """Make step number `step` of Adam.

    `vectors` [D] are values, gradients and the two moments; `numbers` are the learning rate, the two betas, eps and the weight
    decay.
    """
    rate, beta1, beta2, eps, decay = numbers
    correction1, correction2 = 1 - beta1**step, math.sqrt(1 - beta2**step)
    options = Adam(rate / correction1, 1 - beta1, beta2, 1 - beta2, 1 / correction2, eps, decay, maximize)
    loaded_library().adam_step(*map(Tensor.data_ptr, vectors), vectors[0].numel(), byref(options))
