"""Weights of sb3-contrib's TQC."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlsdk.interchange.sb3 import Translated, hidden, layers_of, renamed
from rlsdk.spaces import Space


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """The actor, and the critics stacked: weights [out, in] of each critic become [critics, in, out].

    Raises:
        ValueError: an encoder this does not know.
    """
    if any("features_extractor" in name for name in weights):
        raise ValueError("encoders of images and Dict observations are not imported")
    actor = renamed(weights, [("actor.latent_pi.", "body."), ("actor.mu.", "mean."), ("actor.log_std.", "log_std.")])
    members = sum(name.startswith("critic.qf") and name.endswith(".0.weight") for name in weights)
    networks = {
        "net_arch": {"pi": hidden(weights, "actor.latent_pi."), "qf": hidden(weights, "critic.qf0.", output=True)},
        "n_critics": members,
        "n_quantiles": len(layers_of(weights, "critic.qf0.")[-1]),
    }
    parameters = {
        "policy": actor,
        "critic": _stacked(weights, "critic.", members),
        "critic_target": _stacked(weights, "critic_target.", members),
    }
    return Translated("MlpPolicy", networks, parameters)


def _stacked(weights: Mapping[str, Tensor], prefix: str, members: int) -> dict[str, Tensor]:
    found = {}
    for i in range(0, 2 * len(layers_of(weights, f"{prefix}qf0.")), 2):
        names = [f"{prefix}qf{member}.{i}." for member in range(members)]
        found[f"ensemble.layers.{i}.weight"] = torch.stack([weights[f"{name}weight"].T for name in names])
        found[f"ensemble.layers.{i}.bias"] = torch.stack([weights[f"{name}bias"].unsqueeze(0) for name in names])
    return found
