"""Epsilon-greedy acting with dense layers, for few rows: calls of torch would take longer than the network."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from rlsdk.kernels import compiled_policy
from rlsdk.kernels.compiled_dense import CompiledDense
from rlsdk.kernels.dense_choice import acting_dense
from rlsdk.kernels.dense_kernel import ACTING_ROWS
from rlsdk.records import Observation


class GreedyActing:
    """Acts epsilon-greedily on the mean of K values per action. Actions and random numbers equal those of
    `rlsdk.networks.epsilon_greedy`."""

    def __init__(self, modules: Iterable[nn.Module], actions: int, values_per_action: int) -> None:
        """`actions` is the number of actions, which are counted from 0; `values_per_action` is K."""
        self.kernel, self.actions, self.values_per_action = acting_dense(modules), actions, values_per_action
        self._compiled = isinstance(self.kernel, CompiledDense)

    def fits(self, observation: Observation) -> bool:
        """Whether the observation has few rows, is on the CPU and has no mask."""
        first = observation.is_first
        return observation.action_mask is None and first.shape[0] <= ACTING_ROWS and first.is_cpu

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Return actions int64 [N] for encoded observations [N, F]; each is random with probability `epsilon` (0-d;
        None: 0)."""
        values = self.kernel.outputs(features)
        if self._compiled:
            return compiled_policy.greedy(values, (self.actions, self.values_per_action), epsilon, generator)
        return torch.from_numpy(self._chosen(values.numpy(), epsilon, generator))

    def _chosen(self, values: NDArray[np.float32], epsilon: Tensor | None, generator: Generator) -> NDArray[np.int64]:
        """Return actions [N] for values [N, A * K]."""
        if (entries := self.values_per_action) > 1:
            values = np.add.reduce(values.reshape(len(values), -1, entries), -1)  # the largest sum is the largest mean
        found: NDArray[np.int64] = values.argmax(-1)
        if epsilon is not None:
            drawn = torch.randint(self.actions, found.shape, generator=generator).numpy()
            found = np.where(torch.rand(found.shape, generator=generator).numpy() < epsilon.numpy(), drawn, found)
        return found
