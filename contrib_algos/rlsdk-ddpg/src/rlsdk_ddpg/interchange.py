"""Translates the weights of stable-baselines3's DDPG into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, deterministic_actor_critic


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate actor, critics and their target networks, from weights [out, in].

    Raises:
        ValueError: the encoder is not supported.
    """
    return deterministic_actor_critic(weights)
