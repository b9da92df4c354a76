"""Evaluates squashed Gaussian policies, in numpy or in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, byref
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.kernels import SquashedLayers, SquashedPolicy
from rlsdk_kernels import compiled_library as c
from rlsdk_kernels.backends import BACKENDS
from rlsdk_kernels.compiled_dense import CompiledDense, exhausted
from rlsdk_kernels.dense_choice import dense_of
from rlsdk_kernels.dense_kernel import ACTING_ROWS, DenseKernel

# Evaluates a squashed Gaussian policy of dense layers without autograd.


class SquashedKernel:
    """Learns with `backend`. Acts in numpy for few rows, for which calls of torch would take longer than the arithmetic."""

    def __init__(self, layers: SquashedLayers, name: str, reference: SquashedPolicy) -> None:
        """`name` is that of the backend; `reference` acts for many rows."""
        self.layers, self.reference = layers, reference
        self._acting, self._spread = DenseKernel([*layers.body, layers.mean]), DenseKernel([layers.log_std])
        parts = layers.body, [layers.mean], [layers.log_std]
        self.body, self.mean, self.log_std = (dense_of(part, name) for part in parts)
        self.backend, self.name = BACKENDS[name], name

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Return unit actions [N, A] for features [N, F]."""
        if len(features) > ACTING_ROWS or not features.is_cpu:
            return self.reference.act(features, deterministic, generator)
        mean, trace = self._acting.forward(features.numpy())
        if deterministic:
            return torch.from_numpy(np.tanh(mean))
        log_std, (low, high) = self._spread(trace[-2]), self.layers.log_std_range
        noise = torch.randn(mean.shape, generator=generator).numpy()
        std = np.exp(np.minimum(np.maximum(log_std, low), high))
        return torch.from_numpy(np.tanh(mean + std * noise))

    @torch.no_grad()
    def evaluate(self, inputs: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Callable[[Tensor, Tensor], None]]:
        """Return ((actions [N, A], log-densities [N]), vjp); see `rlsdk.kernels.SquashedPolicy`."""
        features, noise = inputs
        array, tensor, limits = self.backend.array, self.backend.tensor, self.layers.log_std_range
        latent, trace = self.body.forward(array(features))
        (mean, mean_trace), (raw, raw_trace) = self.mean.forward(latent), self.log_std.forward(latent)
        raw = tensor(raw)
        distribution = self.layers.distribution(tensor(mean), raw.clamp(*limits))
        action, log_prob = distribution.transform(noise)

        @torch.no_grad()
        def vjp(grad_action: Tensor, grad_log_prob: Tensor) -> None:
            grad_mean, grad_log_std = distribution.transform_vjp(noise, action, grad_action, grad_log_prob)
            grad_log_std *= (raw >= limits[0]) & (raw <= limits[1])
            grad = self.mean.input_grad(mean_trace, array(grad_mean), self.mean.gradients())
            grad += self.log_std.input_grad(raw_trace, array(grad_log_std), self.log_std.gradients())
            self.body.backward(trace, grad, self.body.gradients())

        return (action, log_prob), vjp


# Squashed Gaussian policies in compiled code: one call evaluates the network and samples, one computes all gradients.


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
