"""Actor-critics on recorded steps: what imitation needs."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlsdk.distributions import with_least_deviation
from rlsdk.interfaces import Distribution
from rlsdk.records import Observation

States = tuple[Tensor, ...]


class Memories(Protocol):
    """Of actor and critic; `ActorCriticCarry` is one."""

    @property
    def actor(self) -> States: ...

    @property
    def critic(self) -> States: ...


class Evaluates(Protocol):
    """What is needed of a network; `ActorCritic` has it."""

    def initial_carry(self, batch: int, /) -> Memories:
        """The memories [batch, ..] at the start of episodes."""
        ...

    def evaluate(
        self, observation: Observation, carry: tuple[States, States], starts: Tensor, /
    ) -> tuple[Distribution, Tensor]:
        """(action distribution, values [N]) of N steps; see `ActorCritic.evaluate`."""
        ...

    def internal(self, action: object, /) -> Tensor:
        """Actions [N, ..]; see `ActorCritic.internal`."""
        ...


def as_recorded(
    network: Evaluates, observation: Observation, starts: Tensor | None = None
) -> tuple[Observation, tuple[States, States], Tensor]:
    """What `Evaluates.evaluate` takes of recorded steps [N, ..], whose carries are not stored; see `evaluate_recorded`."""
    first = torch.ones_like(observation.is_first) if starts is None else starts
    seen = Observation(observation.features, observation.is_first | first, observation.action_mask)
    carry = network.initial_carry(len(first))
    return seen, (carry.actor, carry.critic), first


def evaluate_recorded(
    network: Evaluates, observation: Observation, starts: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """(action distribution, values [N]) of N recorded steps, whose carries are not stored.

    Args:
        network: of actor and critic.
        observation: [N, ..], as the policy sees it.
        starts: bool [N], True where a sequence of consecutive rows begins, with an empty memory; None: every row is one.
    """
    return network.evaluate(*as_recorded(network, observation, starts))


def imitation_loss(
    network: Evaluates, observation: Observation, action: object, starts: Tensor | None = None
) -> Tensor:
    """-log pi(a|s) [N], with a least deviation; see `rlsdk.interfaces.Imitates`."""
    distribution = with_least_deviation(evaluate_recorded(network, observation, starts)[0])
    return -distribution.log_prob(network.internal(action))
