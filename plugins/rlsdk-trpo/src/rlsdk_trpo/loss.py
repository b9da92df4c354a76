"""The objective of TRPO: pure tensor functions. Source: Schulman et al. 2015, arXiv:1502.05477."""

from __future__ import annotations

from torch import Tensor


def surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The objective mean pi(a|s) / pi_old(a|s) A (equation 14), 0-d, which is maximized. Arguments are float [N]."""
    return ((log_prob - old_log_prob).exp() * advantage).mean()


def surrogate_grad(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """The gradient [N] of `surrogate` with respect to `log_prob`."""
    return (log_prob - old_log_prob).exp() * advantage / len(advantage)


def longest_step(target_kl: float, curvature: Tensor) -> Tensor:
    """beta = sqrt(2 delta / s^T F s), 0-d (appendix C): the step length along s at which the quadratic model of the KL
    divergence reaches delta = `target_kl`.

    `curvature`: s^T F s, 0-d.
    """
    return (2.0 * target_kl / curvature).sqrt()
