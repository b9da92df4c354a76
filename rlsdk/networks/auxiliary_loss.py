"""Further losses of a user's network, such as a reconstruction error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from rlsdk.errors import UsageError, shown

_left_out: ContextVar[bool] = ContextVar("left_out", default=False)
_refused: ContextVar[str] = ContextVar("refused", default="")


class _Attached(torch.autograd.Function):
    """The identity in its first argument; passing a gradient back gives the second one the gradient 1."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, loss: Tensor) -> Tensor:
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad.new_ones(())


def with_auxiliary_loss(outputs: Tensor, loss: Tensor) -> Tensor:
    """`outputs` unchanged. Where an update passes the gradient of its loss back through them, the gradient of `loss` is added.
    Call it in the `forward` of a features extractor or of a whole network.

    Args:
        outputs: what `forward` returns, float [N, ..].
        loss: float [], a mean over rows times its weight.

    Raises:
        UsageError: `loss` is not a single number, or the algorithm cannot use it (TRPO, ACKTR).
    """
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        raise UsageError(
            f"with_auxiliary_loss(outputs, loss): loss is {shown(loss)}; it must be a 0-d float tensor, a mean"
        )
    if not torch.is_grad_enabled() or not loss.requires_grad or _left_out.get():
        return outputs
    if algorithm := _refused.get():
        raise UsageError(
            f"{algorithm} steps along natural gradients, which an auxiliary loss has no part in; leave out with_auxiliary_loss,"
            " or use PPO or A2C"
        )
    attached: Tensor = _Attached.apply(outputs, loss)  # type: ignore[no-untyped-call]
    return attached


@contextmanager
def auxiliary_losses_left_out() -> Iterator[None]:
    """Inside the block networks are differentiated with respect to their inputs, and auxiliary losses are not added."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


@contextmanager
def auxiliary_losses_refused(algorithm: str) -> Iterator[None]:
    """Inside the block `with_auxiliary_loss` raises; for updates whose gradients are not those of a loss."""
    token = _refused.set(algorithm)
    try:
        yield
    finally:
        _refused.reset(token)
