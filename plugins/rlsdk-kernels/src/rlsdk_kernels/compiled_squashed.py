"""Squashed Gaussian policies in compiled code: one call evaluates the network and samples, one computes all gradients."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, byref
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk.kernels import SquashedLayers
from rlsdk_kernels import compiled_library as c
from rlsdk_kernels.compiled_dense import CompiledDense, exhausted


class CompiledSquashedPolicy:
    """See `rlsdk.kernels.SquashedPolicy`."""

    name = CompiledDense.name

    def __init__(self, layers: SquashedLayers) -> None:
        """Check `can_be_compiled` for body, mean and log std first."""
        self.networks = [CompiledDense(part) for part in (layers.body, [layers.mean], [layers.log_std])]
        self.limits, (body, mean, _) = layers.log_std_range, self.networks
        self.size = mean.output_size
        self._numbers = body.hidden_size + body.output_size + 2 * self.size
        """The number of floats in a trace, for each row."""
        self._described: dict[bool, Any] = {}

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Return unit actions [N, A] for features [N, F]."""
        inputs = self.networks[0].checked(features)
        drawn = inputs.new_zeros(inputs.shape[0], self.size)
        if not deterministic:
            drawn.normal_(generator=generator)
        description = self._description(grads=False)
        if c.loaded_library().squashed_act(description, inputs.data_ptr(), inputs.shape[0], drawn.data_ptr()):
            raise exhausted()
        return drawn

    @torch.no_grad()
    def evaluate(self, inputs: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Callable[[Tensor, Tensor], None]]:
        """Return ((actions [N, A], log-densities [N]), vjp)."""
        features = self.networks[0].checked(inputs[0])
        rows = features.shape[0]
        noise, action = c.floats_of(inputs[1], rows, self.size), features.new_empty(rows, self.size)
        log_prob, memory = features.new_empty(rows), features.new_empty(rows * self._numbers)
        given, results = (features.data_ptr(), noise.data_ptr()), map(Tensor.data_ptr, (memory, action, log_prob))
        if c.loaded_library().squashed_forward(self._description(grads=False), *given, rows, *results):
            raise exhausted()

        def vjp(grad_action: Tensor, grad_log_prob: Tensor) -> None:
            grads = c.floats_of(grad_action, rows, self.size), c.floats_of(grad_log_prob, rows)
            given, further = (features.data_ptr(), noise.data_ptr()), map(Tensor.data_ptr, (memory, action, *grads))
            if c.loaded_library().squashed_backward(self._description(grads=True), *given, rows, *further):
                raise exhausted()

        return (action, log_prob), vjp

    def _description(self, *, grads: bool) -> Any:
        """What compiled code reads of the network, with or without the addresses of gradients."""
        read = [(network.layers(), network.gradients() if grads else None) for network in self.networks]
        found = self._described.get(grads)
        if found is None or found.read != read:
            places = [(addressof(layers), None if into is None else addressof(into)) for layers, into in read]
            counts = [len(network.linear) for network in self.networks]
            parts = [c.Network(layers, count, into) for (layers, into), count in zip(places, counts, strict=True)]
            found = c.Squashed(*parts, *self.limits)
            found.read = read  # these arrays live as long as the description
            self._described[grads] = found
        return byref(found)
