"""Translates the weights of stable-baselines3's A2C into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, actor_critic


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the policy and its value function, from weights [out, in, ..] and biases [out]."""
    return actor_critic(weights)
