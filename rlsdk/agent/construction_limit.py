"""A limit on the size of the networks that a file describes, because settings of a few bytes can describe any network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlsdk.errors import ArtifactError

FREE_BYTES = 512 * 2**20
PER_BYTE = 16
"""The allowed bytes of networks, targets, gradients and optimisers per byte of the file, in addition to `FREE_BYTES`."""
FREE_WORK = 2e10
"""The allowed multiplications for orthogonal initial weights, for a file of any size."""
BY_SIZE = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full)
OF_TENSOR = (Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full)


class ConstructionLimit(TorchFunctionMode):
    """Limits the total size of tensors that are made inside the block, for the agent of a file with `size` bytes of tensors."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.left = FREE_BYTES + PER_BYTE * size
        self.work_left = FREE_WORK + float(size) ** 1.5

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call a torch function. Raises ArtifactError before it would allocate a tensor that passes the limit."""
        options = kwargs or {}
        if func in BY_SIZE:
            self._charge(options.get("size", args), options.get("dtype"))
        elif func in OF_TENSOR:
            self._charge(options.get("size", args[1:]), options.get("dtype"))
        elif func is torch.linalg.qr and isinstance(matrix := args[0], Tensor):
            self.work_left -= matrix.numel() * min(matrix.shape[-2:])
            self._require_rest()
        return func(*args, **options)

    def _require_rest(self) -> None:  # not for every function: those that leave `no_grad` are also intercepted
        if self.left < 0 or self.work_left < 0:
            raise ArtifactError(
                "the file's settings and spaces describe networks that are far larger than the file; they do not belong to it"
            )

    def _charge(self, size: object, dtype: object) -> None:
        parts = list(size) if isinstance(size, Iterable) else []
        if parts and isinstance(inner := parts[0], Iterable):
            parts = list(inner)
        whole = [n for n in parts if isinstance(n, int) and not isinstance(n, bool)]
        itemsize = dtype.itemsize if isinstance(dtype, torch.dtype) else 4
        self.left -= math.prod(whole) * itemsize
        self._require_rest()
