"""The update of TD3+BC. Source: Fujimoto and Gu 2021, arXiv:2106.06860, equations 3 and 5."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk.updates import DeterministicActorCritic

SMALLEST = 1e-8
"""The smallest divisor in lambda: mean |Q| counts as at least this value."""


class CloningActorCritic(DeterministicActorCritic):
    """TD3's update with another loss of the actor: (pi(s) - a)^2 - lambda Q(s, pi(s)), lambda = alpha / mean |Q(s, pi(s))|.

    Actions are unit actions in [-1, 1], so `alpha` does not depend on the environment's units.
    """

    alpha: float = 0.0

    def actor_loss(self, batch: Transitions, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the loss 0-d, its gradient with respect to the actor's unit actions `action` [N, A]) for N transitions."""
        with torch.no_grad():
            features = self.critics.encoder(batch.observation.features)
        value, grad = self.critics.action_gradient(features, action, self._weighted, first=True)
        error = action - self.actor.scale.to_unit(batch.action)
        return error.square().mean() - value, error * (2.0 / error.numel()) - grad

    def _weighted(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return (lambda mean Q, 0-d; its gradient) for values [.., N, 1]. Lambda counts as a constant."""
        weight = self.alpha / values.abs().mean().clamp(min=SMALLEST)
        return weight * values.mean(), (weight / values.numel()).expand_as(values)
