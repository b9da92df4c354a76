"""The policy of ARS, in torch for predicting and saving, and in numpy for playing candidates anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from rlsdk.networks import ActionScale
from rlsdk.records import Act, Observation
from rlsdk.spaces import Box, Discrete

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "identity": lambda x: x,
}


class SearchPolicy(nn.Module):
    """Encoder without parameters -> layers -> an action: the largest output, or outputs clipped or squashed into a Box."""

    def __init__(self, encoder: nn.Module, layers: nn.Sequential, space: Box | Discrete, squash: bool) -> None:
        super().__init__()
        self.encoder, self.layers, self.space = encoder, layers, space
        self.scale = ActionScale(space) if squash and isinstance(space, Box) else None

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        return Act(self._action(self.layers(self.encoder(observation.features))), (), ())

    def _action(self, outputs: Tensor) -> Tensor:
        if isinstance(self.space, Discrete):
            return outputs.argmax(-1) + self.space.start
        if self.scale is not None:
            return self.scale.to_environment(outputs.tanh())
        low, high = (
            torch.as_tensor(b.copy(), device=outputs.device).float() for b in (self.space.low, self.space.high)
        )
        return outputs.reshape(-1, *self.space.shape).clamp(low, high)


@attrs.frozen
class NumpyPolicy:
    """The same function of a parameter vector, without torch; travels to other processes."""

    shapes: tuple[tuple[int, int, bool], ...]
    """(outputs, inputs, has a bias) of each layer"""
    activation: str
    space: Box | Discrete
    squash: bool

    def __call__(self, parameters: NDArray[np.float32]) -> Callable[[Any], Any]:
        """What acts with these parameters [D]."""
        layers, start = [], 0
        for outputs, inputs, biased in self.shapes:
            weight = parameters[start : start + outputs * inputs].reshape(outputs, inputs).astype(np.float64)
            start += outputs * inputs
            bias = parameters[start : start + outputs].astype(np.float64) if biased else None
            start += outputs if biased else 0
            layers.append((weight, bias))
        activation, last = ACTIVATIONS[self.activation], len(layers) - 1

        def act(vector: Any) -> Any:
            for k, (weight, bias) in enumerate(layers):
                vector = weight @ vector if bias is None else weight @ vector + bias
                vector = activation(vector) if k < last else vector
            return self._action(vector)

        return act

    def _action(self, outputs: Any) -> Any:
        if isinstance(self.space, Discrete):
            return np.int64(int(outputs.argmax()) + self.space.start)
        low, high = self.space.low, self.space.high
        values = outputs.reshape(self.space.shape)
        if self.squash:
            values = low + 0.5 * (np.tanh(values) + 1.0) * (high - low)
        return np.clip(values, low, high).astype(self.space.dtype)
