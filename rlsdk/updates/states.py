"""The types of the states that files store for each update. The weights of the acting policy are not part of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from torch import Tensor


class ClippedPolicyState(TypedDict):
    """The state of `ClippedPolicy`."""

    optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class QLearningState(TypedDict):
    """The state of `QLearning`."""

    target: Mapping[str, Tensor]
    optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class EntropyState(TypedDict):
    """The state of `EntropyCoefficient`."""

    log_alpha: Tensor
    optimizer: Mapping[str, object]


class TrainedCriticsState(TypedDict):
    """The state of `TrainedCritics`."""

    critic: Mapping[str, Tensor]
    critic_target: Mapping[str, Tensor]
    actor_optimizer: Mapping[str, object]
    critic_optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class SoftActorCriticState(TrainedCriticsState):
    """The state of `SoftActorCritic`."""

    entropy: EntropyState


class DeterministicActorCriticState(TrainedCriticsState):
    """The state of `DeterministicActorCritic`."""

    actor_target: Mapping[str, Tensor]
