"""An actor-critic that stores the log-probability of each action. Importance weights of replayed steps need it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Categorical
from rlsdk.networks import FlattenEncoder, mlp
from rlsdk.records import Act, Observation
from rlsdk.spaces import Discrete, Space

Extras = Mapping[str, Tensor]


class ActorCriticNetwork(nn.Module):
    """A softmax policy and a state value."""

    def __init__(self, observations: Space, actions: Discrete, hidden: int) -> None:
        super().__init__()
        self.encoder, self.start = FlattenEncoder(observations), actions.start
        size = self.encoder.features_dim
        self.actor = nn.Sequential(*mlp(size, (hidden, hidden), "tanh"), nn.Linear(hidden, actions.n))
        self.critic = nn.Sequential(*mlp(size, (hidden, hidden), "tanh"), nn.Linear(hidden, 1))

    def distribution(self, observation: Observation) -> Categorical:
        """The distribution over actions, numbered from 0, of observations [N]. Action masks are respected."""
        return Categorical.of(self.actor(self.encoder(observation.features)), observation.action_mask)

    def value(self, observation: Observation) -> Tensor:
        """The values V of observations [N], float [N]."""
        values: Tensor = self.critic(self.encoder(observation.features))
        return values.squeeze(-1)

    def state_values(self, observation: Observation) -> Tensor:
        """The same as `value`; the contract kit calls it by this name (`rlsdk.interfaces.PolicyAbilities`)."""
        return self.value(observation)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], Extras]:
        chosen = self.distribution(observation)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        return Act(action + self.start, (), {"log_prob": chosen.log_prob(action)})
