"""A softmax policy. A policy is any object with `initial_carry`, `act`, `state_dict` and `load_state_dict`."""

from __future__ import annotations

import torch
from torch import Generator, nn

from rlsdk.distributions import Categorical
from rlsdk.networks import FlattenEncoder, mlp
from rlsdk.records import Act, Observation
from rlsdk.spaces import Discrete, Space


class SoftmaxPolicy(nn.Module):
    """A network with one hidden layer, from observations to a probability for each action."""

    def __init__(self, observations: Space, actions: Discrete, hidden: int) -> None:
        super().__init__()
        self.encoder, self.start = FlattenEncoder(observations), actions.start
        self.layers = nn.Sequential(*mlp(self.encoder.features_dim, (hidden,), "tanh"), nn.Linear(hidden, actions.n))

    def distribution(self, observation: Observation) -> Categorical:
        """The distribution over actions, numbered from 0. Action masks are respected if there are any."""
        return Categorical.of(self.layers(self.encoder(observation.features)), observation.action_mask)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()  # no memory

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        chosen = self.distribution(observation)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        return Act(action + self.start, (), ())
