"""Epsilon-greedy acting with dense layers, for few rows: calls of torch would take longer than the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from rlsdk.kernels import compiled_acting
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
        self._compiled = self.kernel if isinstance(self.kernel, CompiledDense) else None

    def fits(self, observation: Observation) -> bool:
        """Whether the observation is on the CPU and has no mask, and few rows if the kernel is not compiled."""
        first = observation.is_first
        few = self._compiled is not None or first.shape[0] <= ACTING_ROWS
        return observation.action_mask is None and few and first.is_cpu

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Return actions int64 [N] for encoded observations [N, F]; each is random with probability `epsilon` (0-d;
        None: 0)."""
        if (network := self._compiled) is not None:
            return compiled_acting.greedy(network, self.values_per_action, features, epsilon, generator)
        return torch.from_numpy(self._chosen(self.kernel.outputs(features).numpy(), epsilon, generator))

    def in_place(
        self, features: Tensor, epsilon: Tensor, generator: Generator
    ) -> tuple[Callable[[int], None], Tensor] | None:
        """Return (a function of t that acts on `features[t]` [B, F], its storage of actions [T, B]); None if compiled code
        cannot."""
        network = self._compiled
        if network is None or not compiled_acting.fits(network, features) or epsilon.dtype is not torch.float32:
            return None
        return compiled_acting.greedy_in_place(network, self.values_per_action, features, epsilon, generator)

    def _chosen(self, values: NDArray[np.float32], epsilon: Tensor | None, generator: Generator) -> NDArray[np.int64]:
        """Return actions [N] for values [N, A * K]."""
        if (entries := self.values_per_action) > 1:
            values = np.add.reduce(values.reshape(len(values), -1, entries), -1)  # the largest sum is the largest mean
        found: NDArray[np.int64] = values.argmax(-1)
        if epsilon is not None:
            drawn = torch.randint(self.actions, found.shape, generator=generator).numpy()
            found = np.where(torch.rand(found.shape, generator=generator).numpy() < epsilon.numpy(), drawn, found)
        return found
