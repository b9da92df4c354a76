"""Samples of squashed Gaussians, their log-densities and gradients, each in one call of compiled code."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlsdk.kernels.compiled_library import floats_of, loaded_library


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSquashed:
    """A squashed Gaussian; see `rlsdk.distributions.SquashedGaussian`. Mean and log std are float32 [N, A] on the CPU."""

    mean: Tensor
    log_std: Tensor
    limits: tuple[float, float]
    """The smallest and the largest log std. Gradients of others are 0."""

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sample [N, A], its log-density [N]) for standard normal `noise` [N, A]."""
        read, action = floats_of(noise, *self.mean.shape), torch.empty_like(self.mean)
        log_prob = action.new_empty(len(action))
        given = self.mean.data_ptr(), self.log_std.data_ptr(), read.data_ptr()
        results = action.data_ptr(), log_prob.data_ptr()
        loaded_library().squashed_sample(*given, *self.mean.shape, *self.limits, *results)
        return action, log_prob

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients [N, A] of a loss with respect to mean and log std, given those with respect to the results."""
        read = [floats_of(tensor, *self.mean.shape) for tensor in (noise, action, grad_action)]
        grads = torch.empty_like(self.mean), torch.empty_like(self.mean)
        per_row = floats_of(grad_log_prob, len(action))
        given = [tensor.data_ptr() for tensor in (self.log_std, *read, per_row)]
        loaded_library().squashed_vjp(*given, *self.mean.shape, *self.limits, *map(Tensor.data_ptr, grads))
        return grads
