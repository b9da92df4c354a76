"""Weights of sb3-contrib's TQC."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.interchange.sb3 import (
    Translated,
    critic_count,
    hidden,
    layers_of,
    renamed,
    require_names,
    require_plain,
    stacked_critics,
)
from rlsdk.spaces import Space


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """The actor, and the critics stacked: weights [out, in] of each critic become [critics, in, out].

    Raises:
        ValueError: an encoder this does not know. LookupError: weights of another algorithm.
    """
    require_names(weights, "actor.mu.", "actor.log_std.", "critic.qf0.")
    require_plain(weights)
    actor = renamed(weights, [("actor.latent_pi.", "body."), ("actor.mu.", "mean."), ("actor.log_std.", "log_std.")])
    networks = {
        "net_arch": {"pi": hidden(weights, "actor.latent_pi."), "qf": hidden(weights, "critic.qf0.", output=True)},
        "n_critics": critic_count(weights),
        "n_quantiles": len(layers_of(weights, "critic.qf0.")[-1]),
    }
    parameters = {
        "policy": actor,
        "critic": stacked_critics(weights, "critic"),
        "critic_target": stacked_critics(weights, "critic_target"),
    }
    return Translated("MlpPolicy", networks, parameters)
