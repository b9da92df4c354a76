"""Translates the weights of sb3-contrib's QR-DQN into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Discrete, Space
from rlsdk_interchange import Translated, hidden, image_encoder, layers_of, network_of


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the online and the target network. sb3-contrib orders the rows of the last layer as [quantiles, actions], rlsdk
    as [actions, quantiles].

    Raises:
        ValueError: the actions are not Discrete, or the number of outputs is not a multiple of their number.
    """
    count = actions.n if isinstance(actions, Discrete) else 0
    prefix = "quantile_net.quantile_net."
    last = 2 * len(layers_of(weights, prefix)) - 2
    outputs = len(weights[f"{prefix}{last}.weight"])
    if not count or outputs % count:
        raise ValueError(f"{outputs} outputs cannot be divided into quantiles of {count} actions")
    kind, encoder = image_encoder(weights, "quantile_net.")
    networks = {"net_arch": hidden(weights, prefix, output=True), "n_quantiles": outputs // count}
    online, target = (_network(weights, net, last, count) for net in ("quantile_net.", "quantile_net_target."))
    return Translated(f"{kind}Policy", {**networks, **encoder}, {"policy": online, "target": target})


def _network(weights: Mapping[str, Tensor], net: str, last: int, count: int) -> dict[str, Tensor]:
    """The weights [out, in] of one network. The rows of the last layer are reordered to [actions, quantiles]."""
    found = network_of(weights, net, [(f"quantile_net.{i}.", f"body.{i}.") for i in range(0, last, 2)])
    for part in ("weight", "bias"):
        value = weights[f"{net}quantile_net.{last}.{part}"]
        found[f"head.{part}"] = value.view(-1, count, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
    return found
