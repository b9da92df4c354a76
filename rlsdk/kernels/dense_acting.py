"""Acting with dense layers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlsdk.kernels.dense_kernel import ACTING_ROWS, DenseKernel
from rlsdk.kernels.numpy_backend import NUMPY
from rlsdk.kernels.protocol import Acting


class DenseActing:
    """Acts in numpy for few rows, for which calls of torch would take longer than the arithmetic; otherwise calls
    `reference`."""

    def __init__(self, modules: Iterable[nn.Module], reference: Acting) -> None:
        self.kernel, self.reference = DenseKernel(modules, NUMPY), reference

    def __call__(self, features: Tensor) -> Tensor:
        """Raw outputs [N, O] for encoded observations [N, I]."""
        if len(features) > ACTING_ROWS or not features.is_cpu:
            return self.reference(features)
        raw: NDArray[np.float32] = self.kernel(features.numpy())
        return torch.from_numpy(raw)
