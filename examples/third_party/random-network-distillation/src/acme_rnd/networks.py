"""The policy with two value outputs, and the networks whose prediction error is the intrinsic reward."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Categorical
from rlsdk.networks import FlattenEncoder, mlp
from rlsdk.records import Act, Features, Observation
from rlsdk.spaces import Discrete, Space


class TwoValuePolicy(nn.Module):
    """A softmax policy, the value of the environment's reward, and the value of the intrinsic reward."""

    def __init__(self, observations: Space, actions: Discrete, hidden: int) -> None:
        super().__init__()
        self.encoder, self.start = FlattenEncoder(observations), actions.start
        size = self.encoder.features_dim
        self.actor = nn.Sequential(*mlp(size, (hidden, hidden), "tanh"), nn.Linear(hidden, actions.n))
        self.critic = nn.Sequential(*mlp(size, (hidden, hidden), "tanh"), nn.Linear(hidden, 2))

    def distribution(self, observation: Observation) -> Categorical:
        """The distribution over actions, numbered from 0, of observations [N]. Action masks are respected."""
        return Categorical.of(self.actor(self.encoder(observation.features)), observation.action_mask)

    def values(self, observation: Observation) -> Tensor:
        """The values of the environment's and of the intrinsic reward, float [2, N]."""
        values: Tensor = self.critic(self.encoder(observation.features))
        return values.T

    def state_values(self, observation: Observation) -> Tensor:
        """The value of the environment's reward, [N]; the contract kit calls it (`rlsdk.interfaces.PolicyAbilities`)."""
        return self.values(observation)[0]

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], Tensor]:
        """The extras are the log-probabilities [B] of the actions."""
        chosen = self.distribution(observation)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        return Act(action + self.start, (), chosen.log_prob(action))


class Novelty(nn.Module):
    """The error of a trained network that predicts a random one. Source: Burda et al. 2018, arXiv:1810.12894, section 2.2."""

    mean: Tensor
    square: Tensor
    count: Tensor

    def __init__(self, observations: Space, hidden: int) -> None:
        super().__init__()
        self.encoder = FlattenEncoder(observations)
        size = self.encoder.features_dim
        self.random = nn.Sequential(*mlp(size, (hidden,), "relu"), nn.Linear(hidden, hidden)).requires_grad_(False)
        self.predictor = nn.Sequential(*mlp(size, (hidden, hidden), "relu"), nn.Linear(hidden, hidden))
        for name, start in (("mean", 0.0), ("square", 1.0)):
            self.register_buffer(name, torch.full((size,), start))
        self.register_buffer("count", torch.tensor(1e-4))

    @torch.no_grad()
    def observe(self, features: Features) -> None:
        """Update the running mean and mean square of inputs with observations [N, ..]."""
        rows = self.encoder(features)
        share = len(rows) / (self.count + len(rows))
        self.mean += (rows.mean(0) - self.mean) * share
        self.square += (rows.square().mean(0) - self.square) * share
        self.count += len(rows)

    def forward(self, features: Features) -> Tensor:
        """The mean squared error of the prediction for each observation, float [N]."""
        deviation = (self.square - self.mean.square()).clamp(min=1e-8).sqrt()
        rows = ((self.encoder(features) - self.mean) / deviation).clamp(-5.0, 5.0)
        errors: Tensor = (self.predictor(rows) - self.random(rows)).square().mean(-1)
        return errors
