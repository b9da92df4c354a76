"""Evaluates a squashed Gaussian policy of dense layers without autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.kernels import SquashedLayers, SquashedPolicy
from rlsdk_kernels.backends import BACKENDS
from rlsdk_kernels.dense_choice import dense_of
from rlsdk_kernels.dense_kernel import ACTING_ROWS, DenseKernel


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
