"""The model of the environment: a network that predicts steps, and is trained on real steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from acme_dyna.memory import Moves
from rlsdk.networks import mlp


class WorldModel(nn.Module):
    """A network from (normalized observation, action) to the next observation, the reward and the logit of termination."""

    def __init__(self, features: int, actions: int, width: int) -> None:
        super().__init__()
        self.actions = actions
        self.layers = nn.Sequential(*mlp(features + actions, (width, width), "relu"), nn.Linear(width, features + 2))

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict (next observations [N, F], rewards [N], logits [N]) from observations [N, F] and actions int64 [N]."""
        chosen = one_hot(action, self.actions).float()
        change, reward, logit = self.layers(torch.cat([observation, chosen], -1)).split(
            [observation.shape[-1], 1, 1], -1
        )
        return observation + change, reward.squeeze(-1), logit.squeeze(-1)

    def loss(self, moves: Moves) -> Tensor:
        """The sum of the squared errors of observation and reward and the cross-entropy of termination, 0-d."""
        following, reward, logit = self(moves.observation, moves.action)
        error: Tensor = (following - moves.next_observation).square().mean() + (reward - moves.reward).square().mean()
        return error + binary_cross_entropy_with_logits(logit, moves.terminated.float())

    @torch.no_grad()
    def imagine(self, observation: Tensor, action: Tensor) -> Moves:
        """Predict the steps of actions int64 [N] from observations [N, F]."""
        following, reward, logit = self(observation, action)
        return Moves(observation, action, reward, following, logit > 0.0)
