"""Weights of stable-baselines3's SAC."""

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
    """The actor, and the critics stacked, from weights [out, in].

    Raises:
        ValueError: an encoder that this does not know. LookupError: weights of another algorithm.
    """
    require_names(weights, "actor.mu.", "actor.log_std.", "critic.qf0.")
    require_plain(weights)
    if len(layers_of(weights, "critic.qf0.")[-1]) != 1:
        raise ValueError("its critics have several outputs, as those of TQC; import it as tqc")
    actor = renamed(weights, [("actor.latent_pi.", "body."), ("actor.mu.", "mean."), ("actor.log_std.", "log_std.")])
    critics = {net: stacked_critics(weights, net) for net in ("critic", "critic_target")}
    widths = {"pi": hidden(weights, "actor.latent_pi."), "qf": hidden(weights, "critic.qf0.", output=True)}
    networks = {"net_arch": widths, "n_critics": critic_count(weights)}
    return Translated("MlpPolicy", networks, {"policy": actor, **critics})
