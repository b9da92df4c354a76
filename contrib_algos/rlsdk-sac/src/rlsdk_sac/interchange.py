"""Translates the weights of stable-baselines3's SAC into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, layers_of, soft_actor_critic


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the actor and the critics, from weights [out, in]. The weights of all critics are stacked.

    Raises:
        ValueError: the encoder is not supported, or the critics are those of TQC.
        LookupError: the weights are those of another algorithm.
    """
    found = soft_actor_critic(weights)
    if len(layers_of(weights, "critic.qf0.")[-1]) != 1:
        raise ValueError("its critics have several outputs, as those of TQC; import it as tqc")
    return found
