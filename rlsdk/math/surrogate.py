"""Pure functions of policy gradients: returns and advantages, surrogate losses and their derivatives, the natural
gradient.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rlsdk.kernels import factory


def mean_of(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of `values` [N], weighted by `weight` [N]; with weights 0 and 1, the mean over the rows of weight 1."""
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The PPO loss -min(r A, clip(r, 1 - clip, 1 + clip) A), [N]. Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.

    Args:
        ratio: r = pi(a|s) / pi_old(a|s), float [N].
        advantage: A, float [N].
        clip: epsilon of the paper.
    """
    # the minimum is pessimistic: clipping removes the incentive to move far, never the penalty for having done so
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def clipped_surrogate_grad(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The derivative of each row of `clipped_surrogate` with respect to log pi(a|s), [N].

    It is -A r where the minimum is the unclipped term, else 0.
    """
    moved = ratio * advantage
    # <= and not <: inside the clip range both terms are equal, and the gradient is that of the unclipped one
    return moved.mul(moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage).neg_()


def value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """The squared error (target - v)^2, [N]. v is `value`, clipped to at most `clip` away from `old_value`.

    Source: arXiv:1811.02553, section 3. With `clip=None` v is not clipped.
    """
    moved = value if clip is None else old_value + (value - old_value).clamp(-clip, clip)
    return (target - moved).square()


def value_error_grad(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """The derivative of each row of `value_error` with respect to `value`, [N]."""
    if clip is None:
        return (value - target) * 2.0
    step = value - old_value
    # the error is that of the clipped value alone, so beyond the range there is no gradient
    return (old_value + step.clamp(-clip, clip) - target) * (step.abs() <= clip) * 2.0


def approximate_kl(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """The estimates r - 1 - log r of KL(pi_old || pi), [N], which are never negative (Schulman 2020, "k3")."""
    return ratio - 1.0 - log_ratio


def normalized(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """The normalized advantages (A - mean) / (standard deviation + 1e-8), [N].

    Mean and deviation are those of the rows whose `weight` [N] is above 0. With fewer than two such rows, A is unchanged.
    """
    rows = advantage if weight is None else advantage[weight > 0.0]
    # the deviation of one row is NaN
    if len(rows) < 2:
        return advantage
    deviation, mean = torch.std_mean(rows)
    # 1e-8: equal advantages have the deviation 0
    return (advantage - mean) / (deviation + 1e-8)


def gae(reward: Tensor, value: Tensor, next_value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Generalized advantage estimates [T, B]. Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.

    delta_t = r_t + discount_t V(s_{t+1}) - V(s_t);  A_t = delta_t + trace_t A_{t+1}

    Args:
        reward: float [T, B].
        value: V(s_t), the values of the observations acted on, float [T, B].
        next_value: V(s_{t+1}), the values of the next observations, float [T, B]. Where an episode ended, it is the value of
            that episode's last observation.
        discount: gamma, or 0 where the episode terminated (gamma at a time limit), float [T, B].
        trace: gamma * lambda, or 0 where the episode ended for any reason, float [T, B].
    """
    # discount and trace are separate: a time limit bootstraps, but no trace crosses it
    return discounted_sums(torch.addcmul(reward, discount, next_value).sub_(value), trace)


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """The sums S_t = value_t + weight_t S_{t+1}, computed backwards from S_T = 0; all float [T, B]."""
    return factory.discounted_sums(value, weight)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target), 0-d, for arguments float [N].

    1 is a perfect prediction, 0 is as good as predicting the mean. If the target is constant, the result is 0.
    """
    return factory.explained_variance(prediction, target)


def segments_of(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(first row of each segment [S], segment number of each row [N], position of each row in its segment [N]), all int64.

    Args:
        starts: bool [N], True where a segment begins. The first row must be True.
    """
    first_rows = starts.nonzero().squeeze(-1)
    segment = starts.cumsum(0) - 1
    return first_rows, segment, torch.arange(len(starts), device=starts.device) - first_rows[segment]


def flat_grad(
    output: Tensor, parameters: Iterable[nn.Parameter], create_graph: bool = False, retain_graph: bool = False
) -> Tensor:
    """The gradient of a 0-d `output` with respect to all `parameters`, concatenated to one vector, float [D].

    The gradient is 0 for a parameter that is frozen, or that `output` does not depend on.
    """
    wanted = list(parameters)
    # autograd raises an error for frozen parameters and for outputs without a graph
    asked = [parameter for parameter in wanted if parameter.requires_grad] if output.requires_grad else []
    parts = (
        torch.autograd.grad(
            output, asked, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
        )
        if asked
        else ()
    )
    known = dict(zip(map(id, asked), parts, strict=True))
    found = [known.get(id(parameter)) for parameter in wanted]
    return torch.cat(
        [torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1) for p, g in zip(wanted, found, strict=True)]
    )
