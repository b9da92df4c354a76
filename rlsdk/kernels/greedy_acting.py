"""Epsilon-greedy acting with dense layers in numpy, for few rows: a dozen torch calls would take longer than the network."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.kernels.dense_kernel import ACTING_ROWS, DenseKernel
from rlsdk.kernels.numpy_backend import NUMPY
from rlsdk.records import Observation


class GreedyActing:
    """Of one value per action; actions and random numbers are those of `rlsdk.networks.epsilon_greedy`."""

    def __init__(self, modules: Iterable[nn.Module], actions: int) -> None:
        """`actions`: how many there are, counted from 0."""
        self.kernel, self.actions = DenseKernel(modules, NUMPY), actions

    def fits(self, observation: Observation) -> bool:
        """Whether there are few rows, on the processor, without masks."""
        first = observation.is_first
        return observation.action_mask is None and first.shape[0] <= ACTING_ROWS and first.is_cpu

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Actions int64 [N], for encoded observations [N, F]: random ones with probability `epsilon` (0-d; None: 0)."""
        found = self.kernel(features.numpy()).argmax(-1)
        if epsilon is not None:
            drawn = torch.randint(self.actions, found.shape, generator=generator).numpy()
            found = np.where(torch.rand(found.shape, generator=generator).numpy() < epsilon.numpy(), drawn, found)
        return torch.from_numpy(found)
