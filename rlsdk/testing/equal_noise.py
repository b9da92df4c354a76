"""Random numbers that are the same for every row of a batch, so that the order of rows can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NOISE = frozenset(
    {torch.randn, torch.rand, torch.randn_like, torch.rand_like, torch.normal, torch.bernoulli, torch.poisson}
    | {Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.bernoulli_, Tensor.log_normal_, Tensor.bernoulli}
)
INDICES = frozenset({torch.randint, torch.multinomial, Tensor.multinomial, Tensor.random_})


class EqualNoise(TorchFunctionMode):
    """While it is active every entry of a tensor of noise is the same number, and `torch.randperm` of the number of rows gives
    `order`, so that shuffled minibatches have the same rows wherever these stand.

    Drawn `indices` mean that the update chose rows by itself: a different result then proves nothing.
    """

    def __init__(self, order: Tensor) -> None:
        """`order`: int64 [N], where the rows 0 ... N-1 stand now."""
        super().__init__()
        self.order, self.indices = order, False

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
                found.copy_(found.flatten()[0].clone().expand_as(found))
        return found
