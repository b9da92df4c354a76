"""Functions with which plugins translate weights of stable-baselines3: names and shapes of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import torch
from torch import Tensor

from rlsdk_interchange.sb3_encoders import IMAGES, common_encoder, same_encoder

_UNSHARED = tuple((f"vf_{theirs}", f"critic_{ours}") for theirs, ours in IMAGES)
_ACTORS = {"policy": "actor", "actor_target": "actor_target"}
"""Networks of TD3 and DDPG: name in rlsdk -> name in stable-baselines3."""


@attrs.frozen
class Translated:
    """A plugin's translation of weights: policy name, network settings, and parameters for `Agent.set_parameters`."""

    policy: str
    networks: Mapping[str, object]
    parameters: Mapping[str, Mapping[str, Tensor]]


def renamed(weights: Mapping[str, Tensor], names: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Return weights [..] with replaced prefixes of names: each pair is (old prefix, new prefix). Other weights are left
    out."""
    return {
        new + name.removeprefix(old): w for old, new in names for name, w in weights.items() if name.startswith(old)
    }


def require_names(weights: Mapping[str, Tensor], *starts: str) -> None:
    """Check that for each of `starts` there is a weight [..] whose name begins with it.

    Raises:
        LookupError: there is none, so the file belongs to another algorithm.
    """
    for start in starts:
        if not any(name.startswith(start) for name in weights):
            raise LookupError(start)


def layers_of(weights: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    """Return the weight matrices [outputs, inputs] with names prefix + number + ".weight", in the order of the numbers."""
    numbers = sorted(
        int(name.removeprefix(prefix).removesuffix(".weight"))
        for name in weights
        if name.startswith(prefix) and name.removeprefix(prefix).removesuffix(".weight").isdecimal()
    )
    return [weights[f"{prefix}{number}.weight"] for number in numbers]


def hidden(weights: Mapping[str, Tensor], prefix: str, *, output: bool = False) -> list[int]:
    """Return the widths of hidden layers, from matrices [outputs, inputs]. With `output`, the last matrix is the output
    layer."""
    found = [len(weight) for weight in layers_of(weights, prefix)]
    return found[:-1] if output else found


def network_of(weights: Mapping[str, Tensor], prefix: str, names: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Return the weights [..] of one network, whose names begin with `prefix`.

    These are the weights of its encoder, and those that `names` renames (see `renamed`).
    """
    own = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
    return renamed(own, [*names, *IMAGES])


def actor_critic(weights: Mapping[str, Tensor], memory: str = "") -> Translated:
    """Translate the policy of an on-policy algorithm. Observations are vectors [F], images [C, H, W] or a Dict of both.

    `memory` is the part of the policy's name for recurrent policies: "" or "Lstm".

    Raises:
        ValueError: the encoder is not supported.
        LookupError: the weights belong to another algorithm.
    """
    require_names(weights, "action_net.", "value_net.", *(["lstm_actor."] if memory else []))
    if not memory and any(name.startswith("lstm_actor.") for name in weights):
        raise LookupError("lstm_actor.")
    own = not same_encoder(weights, "features_extractor.", "vf_features_extractor.")
    kind, networks = common_encoder(weights, ["", "vf_"] if own else [""])
    gsde = "log_std" in weights and weights["log_std"].dim() == 2  # [latent, actions]; otherwise one per action
    names = [
        ("mlp_extractor.policy_net.", "body."),
        ("mlp_extractor.value_net.", "critic_body."),
        ("action_net.", "head.head.linear." if gsde else "head.linear."),
        ("value_net.", "value."),
        ("log_std", "head.noise.log_std" if gsde else "head.log_std"),
        ("lstm_actor.", "memory.cells."),
        ("lstm_critic.", "critic_memory.cells."),
        ("critic.", "critic_memory.linear."),
        *IMAGES,
        *(_UNSHARED if own else ()),
    ]
    arch = {own: hidden(weights, f"mlp_extractor.{theirs}_net.") for own, theirs in (("pi", "policy"), ("vf", "value"))}
    networks |= {"net_arch": arch} | ({"share_features_extractor": False} if own else {})
    return Translated(f"{kind}{memory}Policy", networks, {"policy": renamed(weights, names)})


def critic_count(weights: Mapping[str, Tensor]) -> int:
    """Return the number of critics of an off-policy algorithm with Box actions, whose weights are [out, in]."""
    return sum(name.startswith("critic.qf") and name.endswith(".0.weight") for name in weights)


def stacked_critics(weights: Mapping[str, Tensor], network: str) -> dict[str, Tensor]:
    """Return the critics of `network` (critic or critic_target) stacked.

    The weights [out, in] of each critic become [critics, in, out].
    """
    found = {}
    for i in range(0, 2 * len(layers_of(weights, f"{network}.qf0.")), 2):
        names = [f"{network}.qf{member}.{i}." for member in range(critic_count(weights))]
        found[f"ensemble.layers.{i}.weight"] = torch.stack([weights[f"{name}weight"].T for name in names])
        found[f"ensemble.layers.{i}.bias"] = torch.stack([weights[f"{name}bias"].unsqueeze(0) for name in names])
    return found


def deterministic_actor_critic(weights: Mapping[str, Tensor]) -> Translated:
    """Translate the actor, the critics and their targets of TD3 and DDPG, from weights [out, in].

    Raises:
        ValueError: the encoder is not supported.
        LookupError: the weights belong to another algorithm.
    """
    require_names(weights, "actor.mu.", "actor_target.mu.", "critic.qf0.", "critic_target.qf0.")
    last = 2 * len(layers_of(weights, "actor.mu.")) - 2
    layers = [*((f"mu.{i}.", f"body.{i}.") for i in range(0, last, 2)), (f"mu.{last}.", "mean.")]
    actors = {ours: network_of(weights, f"{theirs}.", layers) for ours, theirs in _ACTORS.items()}
    found = _with_critics(weights, _ACTORS.values(), hidden(weights, "actor.mu.", output=True))
    return attrs.evolve(found, parameters={**actors, **found.parameters})


def soft_actor_critic(weights: Mapping[str, Tensor]) -> Translated:
    """Translate the actor of SAC and TQC, and the critics, stacked, from weights [out, in].

    Raises:
        ValueError: the encoder is not supported, or gSDE has separate layers.
        LookupError: the weights belong to another algorithm.
    """
    gsde = "actor.log_std" in weights  # gSDE has a matrix; otherwise a layer computes the deviations
    deviations = "actor.log_std" if gsde else "actor.log_std."
    require_names(weights, "actor.mu.", deviations, "critic.qf0.", "critic_target.qf0.")
    if any(name.startswith("actor.sde_features_extractor.") for name in weights):
        raise ValueError("gSDE with separate layers (sde_net_arch) is not imported")
    clipped = "actor.mu.0.weight" in weights  # a clip of the mean follows the layer
    layers = [
        ("latent_pi.", "body."),
        ("mu.0." if clipped else "mu.", "mean."),
        ("log_std", "sde.log_std" if gsde else "log_std"),
    ]
    actor = network_of(weights, "actor.", layers)
    learned = {"entropy": {"log_alpha": weights["log_ent_coef"]}} if "log_ent_coef" in weights else {}
    found = _with_critics(weights, ["actor"], hidden(weights, "actor.latent_pi."))
    return attrs.evolve(found, parameters={"policy": actor, **found.parameters, **learned})


def _with_critics(weights: Mapping[str, Tensor], actors: Iterable[str], widths: list[int]) -> Translated:
    """Translate critics and their targets from weights [out, in]. Critics may read the features of the actor.

    `widths` are those of the actor's hidden layers.
    """
    kind, networks = common_encoder(weights, [f"{network}." for network in (*actors, "critic", "critic_target")])
    shared = kind != "Mlp" and same_encoder(weights, "actor.features_extractor.", "critic.features_extractor.")
    critic = stacked_critics(weights, "critic")
    critic = renamed(critic, [("ensemble.", "")]) if shared else critic | network_of(weights, "critic.", [])
    target = stacked_critics(weights, "critic_target") | network_of(weights, "critic_target.", [])
    arch = {"pi": widths, "qf": hidden(weights, "critic.qf0.", output=True)}
    networks |= {"net_arch": arch, "n_critics": critic_count(weights)}
    networks |= {"share_features_extractor": True} if shared else {}
    return Translated(f"{kind}Policy", networks, {"critic": critic, "critic_target": target})
