"""Translates the weights of sb3-contrib's TQC into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, layers_of, soft_actor_critic


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the actor and the critics. The weights [out, in] of all critics are stacked to [critics, in, out].

    Raises:
        ValueError: the encoder is not supported. LookupError: the weights are those of another algorithm.
    """
    found, outputs = soft_actor_critic(weights), len(layers_of(weights, "critic.qf0.")[-1])
    return attrs.evolve(found, networks={**found.networks, "n_quantiles": outputs})
