"""Translates the weights of sb3-contrib's CrossQ into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, hidden, network_of, require_names, require_plain

NUMBERS = {"ra_mean": "mean", "ra_var": "variance", "steps": "passes"}
"""Names of the statistics of a normalization: in sb3-contrib -> in rlsdk."""


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the actor and the critics, from weights [out, in]. The numbers of all critics are stacked.

    Raises:
        ValueError: there is a features extractor, which CrossQ of sb3-contrib 2.9 does not document.
        LookupError: the weights are those of another algorithm.
    """
    require_names(weights, "actor.latent_pi." if "actor.latent_pi.0.scale" in weights else "actor.mu.", "critic.qf0.")
    if any(name.startswith("critic_target.") for name in weights):
        raise LookupError("critic_target.")
    require_plain(weights)
    gsde, clipped = "actor.log_std" in weights, "actor.mu.0.weight" in weights  # a clip of the mean follows the layer
    deviations = "sde.log_std" if gsde else "log_std"
    names = [("latent_pi.", "body."), ("mu.0." if clipped else "mu.", "mean."), ("log_std", deviations)]
    actor = {_renamed(name): weight for name, weight in network_of(weights, "actor.", names).items()}
    learned = {"entropy": {"log_alpha": weights["log_ent_coef"]}} if "log_ent_coef" in weights else {}
    members = sum(name.endswith(".weight") for name in weights if name.startswith("critic.qf"))
    members //= sum(name.endswith(".weight") for name in weights if name.startswith("critic.qf0."))
    networks = {
        "net_arch": {"pi": hidden(weights, "actor.latent_pi."), "qf": hidden(weights, "critic.qf0.", output=True)},
        "n_critics": members,
        "batch_norm": any(name.endswith(".ra_mean") for name in weights),
    }
    return Translated("MlpPolicy", networks, {"policy": actor, "critic": _stacked(weights, members), **learned})


def _stacked(weights: Mapping[str, Tensor], members: int) -> dict[str, Tensor]:
    """The numbers of all critics: weights [out, in] become [C, in, out], other numbers [F] become [C, F]."""
    found = {}
    for name in (name.removeprefix("critic.qf0.") for name in weights if name.startswith("critic.qf0.")):
        each = [weights[f"critic.qf{member}.{name}"] for member in range(members)]
        layer, _, kind = name.rpartition(".")
        if kind == "steps":  # one counter for all
            found[f"ensemble.layers.{_renamed(name)}"] = each[0]
            continue
        is_linear = f"critic.qf0.{layer}.weight" in weights
        rows = [one.T if one.dim() == 2 else one.unsqueeze(0) if is_linear else one for one in each]
        found[f"ensemble.layers.{_renamed(name)}"] = torch.stack(rows)
    return found


def _renamed(name: str) -> str:
    start, dot, kind = name.rpartition(".")
    return f"{start}{dot}{NUMBERS.get(kind, kind)}"
