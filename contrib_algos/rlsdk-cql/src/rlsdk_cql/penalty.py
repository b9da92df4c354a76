"""The conservative penalty of CQL(H) in closed form. Source: Kumar et al. 2020, arXiv:2006.04779, equation 4, appendix F."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlsdk.interfaces import State
from rlsdk.updates import EntropyCoefficient


def sampled_penalty(
    sampled: Tensor, log_density: Tensor, recorded: Tensor, *, weight: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return (the penalty, mean over N of log of the integral of exp Q - Q(s, a), [C]; its gradients).

    The integral is estimated by importance sampling: the mean over S of exp(Q) / density. The gradients are those of the sum
    over critics, with respect to `sampled` and `recorded`.

    Args:
        sampled: values of sampled actions, float [C, S, N].
        log_density: log-densities of these actions under the distributions that they come from, float [S, N].
        recorded: values of recorded actions, float [C, N].
        weight: the weight of each row, float [N]; None = 1.
    """
    corrected = sampled - log_density
    # the mean and not the sum over samples, so that a threshold does not depend on their number
    estimate = corrected.logsumexp(1) - math.log(sampled.shape[1])
    rows = recorded.shape[-1]
    share = torch.full_like(log_density[0], 1.0 / rows) if weight is None else weight / rows
    return ((estimate - recorded) * share).sum(-1), (corrected.softmax(1) * share, -share.expand_as(recorded))


def exact_penalty(
    values: Tensor, taken: Tensor, sizes: tuple[int, ...], mask: Tensor | None, *, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (the penalty, mean over N and choices of log sum exp Q - Q(s, a), 0-d; its gradient [N, A]).

    Args:
        values: values of all choices, one choice after the other, float [N, A].
        taken: recorded actions, counted from 0, int64 [N, choices].
        sizes: the number of values of each choice; A is their sum.
        mask: allowed values, bool [N, A]; None = all. The sum has allowed values only.
        weight: the weight of each row, float [N]; None = 1.
    """
    allowed = values if mask is None else values.masked_fill(~mask, -torch.inf)
    share = torch.full_like(values[:, 0], 1.0) if weight is None else weight
    share, total, gradients = share / taken.numel(), values.new_zeros(()), []
    for number, part in enumerate(torch.split(allowed, list(sizes), -1)):
        chosen = taken[:, number : number + 1]
        total = total + ((part.logsumexp(-1) - part.gather(-1, chosen).squeeze(-1)) * share).sum()
        gradient = part.softmax(-1).scatter_add_(-1, chosen, torch.full_like(part[:, :1], -1.0))
        gradients.append(gradient * share.unsqueeze(-1))
    return total, torch.cat(gradients, -1)


class PenaltyWeight:
    """The weight alpha of the penalty: fixed, or learned so that the penalty approaches a threshold (equation 30).

    A learned one is exp(log alpha), whose loss is -log alpha * (penalty - threshold).
    """

    def __init__(self, alpha: float, threshold: float | None, rate: float, device: str) -> None:
        """`rate`: the first learning rate."""
        self.rate, self.device = rate, device
        self._begin(alpha, threshold)

    def _begin(self, alpha: float, threshold: float | None) -> None:
        self.alpha, self.threshold = alpha, threshold
        self.fixed = torch.tensor(alpha, device=self.device)
        self.learned: EntropyCoefficient | None = None
        if threshold is not None:
            # the same dual step as for the entropy, with the penalty in place of the log-probability
            self.learned = EntropyCoefficient(f"auto_{alpha}", -threshold, self.rate, self.device)

    def reconfigure(self, alpha: float, threshold: float | None) -> None:
        """Use new settings from the next update on. A learned weight continues with another threshold."""
        if self.learned is not None and threshold is not None and alpha == self.alpha:
            self.threshold, self.learned.target_entropy = threshold, -threshold
        elif (alpha, threshold) != (self.alpha, self.threshold):
            self._begin(alpha, threshold)

    def update(self, penalty: Tensor, rate: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (alpha before this update, 0-d; metrics), given penalties of any shape."""
        alpha = self.fixed if self.learned is None else self.learned.update(penalty, rate)[0]
        return alpha, {"train/penalty": penalty.mean(), "train/alpha": alpha}

    def state_dict(self) -> State:
        return {} if self.learned is None else {"learned": self.learned.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a learned weight. One that was constant in the other training begins at `alpha`."""
        if self.learned is not None and "learned" in state:
            self.learned.load_state_dict(state["learned"])
