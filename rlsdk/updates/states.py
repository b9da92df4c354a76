"""What files hold of each update. The weights of the acting policy are the policy's own state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from torch import Tensor


class ClippedPolicyState(TypedDict):
    """Of `ClippedPolicy`."""

    optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class QLearningState(TypedDict):
    """Of `QLearning`."""

    target: Mapping[str, Tensor]
    optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class EntropyState(TypedDict):
    """Of `EntropyCoefficient`."""

    log_alpha: Tensor
    optimizer: Mapping[str, object]


class TrainedCriticsState(TypedDict):
    """Of `TrainedCritics`."""

    critic: Mapping[str, Tensor]
    critic_target: Mapping[str, Tensor]
    actor_optimizer: Mapping[str, object]
    critic_optimizer: Mapping[str, object]
    counters: Mapping[str, int]


class SoftActorCriticState(TrainedCriticsState):
    """Of `SoftActorCritic`."""

    entropy: EntropyState


class DeterministicActorCriticState(TrainedCriticsState):
    """Of `DeterministicActorCritic`."""

    actor_target: Mapping[str, Tensor]
