"""Translates the weights of stable-baselines3's DQN into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, hidden, image_encoder, layers_of, network_of, require_names


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the online and the target network, from weights [out, in].

    Raises:
        LookupError: the weights are those of another algorithm.
    """
    require_names(weights, "q_net.q_net.", "q_net_target.")
    prefix = "q_net.q_net."
    last = 2 * len(layers_of(weights, prefix)) - 2
    kind, encoder = image_encoder(weights, "q_net.")
    names = [*((f"q_net.{i}.", f"body.{i}.") for i in range(0, last, 2)), (f"q_net.{last}.", "head.")]
    online, target = (network_of(weights, net, names) for net in ("q_net.", "q_net_target."))
    networks = {"net_arch": hidden(weights, prefix, output=True)}
    return Translated(f"{kind}Policy", {**networks, **encoder}, {"policy": online, "target": target})
