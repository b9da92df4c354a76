"""The policy of QR-DQN: epsilon-greedy on the mean of predicted quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rlsdk.exploration import epsilon_greedy
from rlsdk.networks import features_dim, mlp, mode_matters
from rlsdk.records import Act, Observation
from rlsdk.spaces import Discrete
from rlsdk_qrdqn.loss import greedy_action


class QuantilePolicy(nn.Module):
    """Encoder -> hidden layers -> quantiles [N, A, K]."""

    epsilon: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        hidden: Sequence[int],
        activation_fn: str | Callable[[], nn.Module],
        space: Discrete,
        quantiles: int,
    ) -> None:
        super().__init__()
        self.encoder, self.space, self.quantiles = encoder, space, quantiles
        inputs = features_dim(encoder)
        self.body = mlp(inputs, hidden, activation_fn)
        self.head = nn.Linear(hidden[-1] if hidden else inputs, space.n * quantiles)
        self.register_buffer("epsilon", torch.tensor(1.0))
        self.mode_matters = mode_matters(encoder, self.body)

    def forward(self, features: Any) -> Tensor:
        flat: Tensor = self.head(self.body(self.encoder(features)))
        return flat.view(-1, self.space.n, self.quantiles)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        if self.mode_matters:
            self.eval()
        action = greedy_action(self(observation.features), observation.action_mask)
        if not deterministic:
            action = epsilon_greedy(action, self.space.n, self.epsilon, observation.action_mask, generator)
        return Act(action + self.space.start if self.space.start else action, (), ())
