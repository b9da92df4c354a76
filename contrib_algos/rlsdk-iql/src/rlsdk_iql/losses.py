"""The losses of IQL in closed form. Source: Kostrikov et al. 2021, arXiv:2110.06169."""

from __future__ import annotations

from torch import Tensor


def expectile_loss(values: Tensor, wanted: Tensor, expectile: float) -> tuple[Tensor, Tensor]:
    """Return (the mean of |tau - 1{u < 0}| u^2 with u = wanted - values, 0-d; its gradient [N]), equation 5.

    Args:
        values: predictions V(s), float [N].
        wanted: Q(s, a) of recorded actions, float [N].
        expectile: tau, from 0 to 1. With 0.5 the loss is half the squared error.
    """
    error = wanted - values
    # numbers of `torch.where` would be float32, also for values in float64
    weighted = (expectile - (error < 0.0).to(error.dtype)).abs() * error
    return (weighted * error).mean(), weighted * (-2.0 / len(error))


def advantage_weights(advantage: Tensor, beta: float, largest: float) -> Tensor:
    """Return min(exp(beta * A), largest), float [N], for advantages A [N], equation 7. No weight is infinite."""
    # an overflow of exp is infinite, and the bound replaces it
    return (beta * advantage).exp().clamp(max=largest)
