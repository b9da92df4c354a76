"""A policy for Discrete and Box actions, which gives a distribution over actions."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Categorical, Gaussian
from rlsdk.networks import FlattenEncoder, mlp
from rlsdk.records import Act, Observation
from rlsdk.spaces import Box, Discrete, Space


class CloningPolicy(nn.Module):
    """A network with two hidden layers, from observations to the logits of Discrete actions or the means of Box actions."""

    def __init__(self, observations: Space, actions: Discrete | Box, hidden: int) -> None:
        super().__init__()
        self.encoder, self.actions = FlattenEncoder(observations), actions
        size = actions.n if isinstance(actions, Discrete) else torch.Size(actions.shape).numel()
        body = mlp(self.encoder.features_dim, (hidden, hidden), "tanh")
        self.layers = nn.Sequential(*body, nn.Linear(hidden, size))
        self.log_std = nn.Parameter(torch.zeros(size)) if isinstance(actions, Box) else None

    def distribution(self, observation: Observation) -> Categorical | Gaussian:
        """The distribution over Discrete actions, numbered from 0, or over flat Box actions [N, A]. Masks are respected."""
        output = self.layers(self.encoder(observation.features))
        if self.log_std is not None:
            return Gaussian(output, self.log_std)
        return Categorical.of(output, observation.action_mask)

    def log_prob(self, observation: Observation, action: Tensor) -> Tensor:
        """The log-probabilities, float32 [N], of recorded actions [N] or [N, *shape]."""
        chosen = self.distribution(observation)
        if isinstance(self.actions, Discrete):
            return chosen.log_prob(action.long() - self.actions.start)
        return chosen.log_prob(action.flatten(1))

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()  # no memory

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        chosen = self.distribution(observation)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        if isinstance(self.actions, Discrete):
            return Act(action + self.actions.start, (), ())
        return Act(action.reshape(-1, *self.actions.shape), (), ())
