"""Translates the weights of sb3-contrib's ARS into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, hidden, renamed, require_plain


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the policy from weights [out, in, ..] and biases [out]. It is LinearPolicy if the first layer has no bias.

    Raises:
        ValueError: observations go through a features extractor.
    """
    require_plain(weights)
    linear = "action_net.0.bias" not in weights
    networks = {} if linear else {"net_arch": hidden(weights, "action_net.", output=True)}
    policy = "LinearPolicy" if linear else "MlpPolicy"
    return Translated(policy, networks, {"policy": renamed(weights, [("action_net.", "layers.")])})
