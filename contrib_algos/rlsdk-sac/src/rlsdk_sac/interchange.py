"""Weights of stable-baselines3's SAC."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.interchange.sb3 import Translated, layers_of, soft_actor_critic
from rlsdk.spaces import Space


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """The actor, and the critics stacked, from weights [out, in].

    Raises:
        ValueError: an encoder that this does not know, or critics of TQC. LookupError: weights of another algorithm.
    """
    found = soft_actor_critic(weights)
    if len(layers_of(weights, "critic.qf0.")[-1]) != 1:
        raise ValueError("its critics have several outputs, as those of TQC; import it as tqc")
    return found
