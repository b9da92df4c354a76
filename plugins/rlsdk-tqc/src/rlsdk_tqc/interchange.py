"""Weights of sb3-contrib's TQC."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from torch import Tensor

from rlsdk.interchange.sb3 import Translated, layers_of, soft_actor_critic
from rlsdk.spaces import Space


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """The actor, and the critics stacked: weights [out, in] of each critic become [critics, in, out].

    Raises:
        ValueError: an encoder this does not know. LookupError: weights of another algorithm.
    """
    found, outputs = soft_actor_critic(weights), len(layers_of(weights, "critic.qf0.")[-1])
    return attrs.evolve(found, networks={**found.networks, "n_quantiles": outputs})
