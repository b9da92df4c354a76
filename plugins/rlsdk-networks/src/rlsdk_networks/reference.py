"""The networks in plain formulas, in float64 numpy, for the tests. Each gets the weights by name, as `state_dict` has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
EPSILON = 1e-5
"""The number that layer norm adds to variances."""


def dense(weights: Mapping[str, Array], x: Array, activation: str) -> Array:
    """`MlpNetwork` without dropout, [N, inputs] -> [N, outputs]."""
    names = [name.removesuffix(".weight") for name in weights if name.startswith("layers.") and name.endswith("weight")]
    for name, following in zip(names, [*names, "output"][1:], strict=True):
        is_linear = weights[f"{name}.weight"].ndim == 2
        x = _linear(weights, name, x) if is_linear else _normalized(weights, name, x)
        # layer norm is between a linear layer and its activation
        if weights[f"{following}.weight"].ndim == 2:
            x = np.tanh(x) if activation == "tanh" else np.maximum(x, 0.0)
    return _linear(weights, "output", x)


def residual(weights: Mapping[str, Array], x: Array) -> Array:
    """`SimbaNetwork`, [N, inputs] -> [N, outputs]."""
    x = _linear(weights, "embedding", x)
    for k in range(sum(name.endswith("first.weight") for name in weights)):
        inner = _linear(weights, f"blocks.{k}.first", _normalized(weights, f"blocks.{k}.norm", x))
        x = x + _linear(weights, f"blocks.{k}.second", np.maximum(inner, 0.0))
    return _linear(weights, "output", _normalized(weights, "norm", x))


def _linear(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    """A linear layer, [N, I] -> [N, O]."""
    found: Array = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    return found


def _normalized(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    """Layer norm over the features of a row, [N, F] -> [N, F]."""
    centered = x - x.mean(1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(1, keepdims=True) + EPSILON)
    found: Array = scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return found
