"""Evaluates actor-critic networks on recorded steps, for imitation."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlsdk.distributions.least_deviation import with_least_deviation
from rlsdk.interfaces import Distribution
from rlsdk.records import Observation

States = tuple[Tensor, ...]


class Memories(Protocol):
    """The recurrent states of actor and critic. `ActorCriticCarry` implements it."""

    @property
    def actor(self) -> States: ...

    @property
    def critic(self) -> States: ...


class Evaluates(Protocol):
    """The members of a network that are used here. `ActorCritic` implements it."""

    def initial_carry(self, batch: int, /) -> Memories:
        """The recurrent states [batch, ..] at the start of episodes."""
        ...

    def evaluate(
        self, observation: Observation, carry: tuple[States, States], starts: Tensor, /
    ) -> tuple[Distribution, Tensor]:
        """(action distribution, values [N]) of N steps; see `ActorCritic.evaluate`."""
        ...

    def internal(self, action: object, /) -> Tensor:
        """Convert actions [N, ..] to internal actions; see `ActorCritic.internal`."""
        ...


def as_recorded(
    network: Evaluates, observation: Observation, starts: Tensor | None = None
) -> tuple[Observation, tuple[States, States], Tensor]:
    """Return the arguments of `Evaluates.evaluate` for recorded steps [N, ..] without stored carries.

    See `evaluate_recorded` for `starts`.
    """
    first = torch.ones_like(observation.is_first) if starts is None else starts
    seen = Observation(observation.features, observation.is_first | first, observation.action_mask)
    carry = network.initial_carry(len(first))
    return seen, (carry.actor, carry.critic), first


def evaluate_recorded(
    network: Evaluates, observation: Observation, starts: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """Return (action distribution, values [N]) of N recorded steps without stored carries.

    Args:
        network: the actor and critic.
        observation: [N, ..], as the policy receives it.
        starts: bool [N], True where a sequence of consecutive rows begins, with the initial recurrent state; None:
            every row is a sequence.
    """
    return network.evaluate(*as_recorded(network, observation, starts))


def imitation_loss(
    network: Evaluates, observation: Observation, action: object, starts: Tensor | None = None
) -> Tensor:
    """The loss -log pi(a|s) [N], with a lower bound of the standard deviation; see `rlsdk.interfaces.Imitates`."""
    distribution = with_least_deviation(evaluate_recorded(network, observation, starts)[0])
    return -distribution.log_prob(network.internal(action))
