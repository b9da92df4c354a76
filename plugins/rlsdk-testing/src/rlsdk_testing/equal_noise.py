"""Makes random numbers equal for all rows of a batch, so that updates with permuted rows can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NOISE = frozenset(
    {torch.randn, torch.rand, torch.randn_like, torch.rand_like, torch.normal, torch.bernoulli, torch.poisson}
    | {Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.bernoulli_, Tensor.log_normal_, Tensor.bernoulli}
)
BITS = frozenset({torch.bernoulli, Tensor.bernoulli_, Tensor.bernoulli})
INDICES = frozenset({torch.randint, torch.multinomial, Tensor.multinomial, Tensor.random_})


class EqualNoise(TorchFunctionMode):
    """While this mode is active, all entries of a random tensor are the same number.

    `torch.randperm(N)` returns `order`, where N is the number of rows, so that shuffled minibatches contain the same rows for
    every order of the batch. If `indices` becomes True, the update has drawn row numbers itself. Then different results of two
    updates do not prove an error.
    """

    def __init__(self, order: Tensor, fill: float | None = None) -> None:
        """Create the mode.

        Args:
            order: int64 [N], the places of the rows 0 ... N-1 in the batch.
            fill: the number that all random numbers are, also for batches of another size; drawn row numbers are then 0,
                and drawn bits 1.
                None: the first of the random numbers.
        """
        super().__init__()
        self.order, self.fill, self.indices = order, fill, False

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor):
            return found
        if func is torch.randperm:
            return self.order.to(found) if len(found) == len(self.order) else torch.arange(len(found)).to(found)
        if func in INDICES and found.numel() > 1 and int(found.max()) > len(self.order) // 2:
            self.indices = True
        if func in NOISE | INDICES and found.numel():
            with torch.no_grad():
                if self.fill is None:
                    found.copy_(found.flatten()[0].clone().expand_as(found))
                else:
                    found.fill_(0.0 if func in INDICES else 1.0 if func in BITS else self.fill)
        return found
