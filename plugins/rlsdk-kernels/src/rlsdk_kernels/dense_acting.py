"""Acting with dense layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from rlsdk_kernels.dense_choice import acting_dense
from rlsdk_kernels.dense_kernel import ACTING_ROWS


class DenseActing:
    """Acts in compiled code or numpy for few rows, for which calls of torch would take longer than the arithmetic.

    Otherwise it calls `reference`.
    """

    def __init__(self, modules: Iterable[nn.Module], reference: Callable[[Tensor], Tensor]) -> None:
        self.kernel, self.reference = acting_dense(modules), reference

    def __call__(self, features: Tensor) -> Tensor:
        """Raw outputs [N, O] for encoded observations [N, I]."""
        if len(features) > ACTING_ROWS or not features.is_cpu:
            return self.reference(features)
        return self.kernel.outputs(features)
