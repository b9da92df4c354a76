"""The gradient of ACER's policy with respect to probabilities, and its projection onto the trust region, in closed form.

Source: Wang et al. 2017, arXiv:1611.01224, sections 3.2 and 3.3.
All functions take N states and return values per state; the caller computes means.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

EPSILON = 1e-6
"""Added to probabilities before a division by them or before their logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """N states and the actions taken in them. No tensor has a graph."""

    probs: Tensor  # pi(.|x), float [N, A]
    behavior: Tensor  # mu(.|x), the probabilities that actions were sampled with, float [N, A]
    action: Tensor  # from 0, int64 [N]
    values: Tensor  # Q(x, .), float [N, A]
    target: Tensor  # Q_ret of the action taken, float [N]

    @property
    def value(self) -> Tensor:
        """V(x) = sum_a pi(a|x) Q(x, a), float [N]."""
        return (self.probs * self.values).sum(-1)

    @property
    def ratios(self) -> Tensor:
        """pi(a|x) / mu(a|x) of all actions, float [N, A]."""
        return self.probs / (self.behavior + EPSILON)

    def of_action(self, values: Tensor) -> Tensor:
        """The entries of `values` [N, A] for the actions taken, [N]."""
        return values.gather(-1, self.action.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """The parts of the objective, float [N] each, and the gradient of their sum with respect to probabilities, [N, A]."""

    truncated: Tensor  # min(c, rho) (Q_ret - V) log pi(a|x)
    correction: Tensor  # sum_a max(0, 1 - c / rho(a)) pi(a) (Q(a) - V) log pi(a|x), weights without gradient
    entropy: Tensor
    gradient: Tensor


def objective(states: States, clip: float, ent_coef: float) -> Objective:
    """The objective of each state that an update increases, equation 9, with its gradient with respect to probabilities.

    Args:
        states: N states.
        clip: c, the bound of importance weights, above 0.
        ent_coef: weight of the entropy.
    """
    probs, value, ratios = states.probs, states.value, states.ratios
    log_probs, inverse = (probs + EPSILON).log(), 1.0 / (probs + EPSILON)
    weight = states.of_action(ratios).clamp(max=clip) * (states.target - value)
    excess = (1.0 - clip / (ratios + EPSILON)).clamp(min=0.0) * probs
    corrections = excess * (states.values - value.unsqueeze(-1))
    gradient = corrections * inverse
    gradient.scatter_add_(-1, states.action.unsqueeze(-1), (weight * states.of_action(inverse)).unsqueeze(-1))
    gradient -= ent_coef * (log_probs + probs * inverse)
    truncated, entropy = weight * states.of_action(log_probs), -(probs * log_probs).sum(-1)
    return Objective(truncated, (corrections * log_probs).sum(-1), entropy, gradient)


def projected(gradient: Tensor, probs: Tensor, average: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Project gradients onto the trust region, equation 12: z is the vector closest to `gradient` with k.z <= delta.

    k = -average / probs is the gradient of KL(average || pi) with respect to pi. So k.z is the rate at which a step along z
    increases this divergence.

    Returns:
        (z [N, A], whether the bound was active, bool [N]).

    Args:
        gradient: g of the objective with respect to probabilities, float [N, A].
        probs: pi(.|x), float [N, A].
        average: the average policy's probabilities, float [N, A].
        delta: the bound, at least 0.
    """
    k = -average / (probs + EPSILON)
    excess = ((k * gradient).sum(-1) - delta).clamp(min=0.0)
    share = excess / k.square().sum(-1).clamp(min=EPSILON)
    return gradient - share.unsqueeze(-1) * k, excess > 0.0


def divergence(average: Tensor, probs: Tensor) -> Tensor:
    """KL(average || pi), float [N], of probabilities [N, A]."""
    return (average * ((average + EPSILON).log() - (probs + EPSILON).log())).sum(-1)
