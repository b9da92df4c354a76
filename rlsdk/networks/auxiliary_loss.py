"""Auxiliary losses of users' networks, such as a reconstruction error."""

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
    """Returns `outputs` unchanged. In the backward pass `loss` receives the gradient 1."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, loss: Tensor) -> Tensor:
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad.new_ones(())


def with_auxiliary_loss(outputs: Tensor, loss: Tensor) -> Tensor:
    """Return `outputs` unchanged, and add the gradient of `loss` when an update backpropagates through them.

    Call it in the `forward` of a features extractor or of a whole network.

    Args:
        outputs: the result of `forward`, float [N, ..].
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
    """Ignore auxiliary losses inside the `with` block, in which networks are differentiated with respect to their inputs."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


@contextmanager
def auxiliary_losses_refused(algorithm: str) -> Iterator[None]:
    """Make `with_auxiliary_loss` raise an error inside the `with` block, for updates that do not follow the gradient of
    a loss."""
    token = _refused.set(algorithm)
    try:
        yield
    finally:
        _refused.reset(token)
