"""Acts with dense layers: computes their outputs, or chooses the greedy action."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from rlsdk.kernels import require_choice
from rlsdk.records import Observation
from rlsdk_kernels.compiled_acting import GreedyChoice, InPlace, can_act_in_place, pays
from rlsdk_kernels.dense_choice import acting_dense, sampling_dense
from rlsdk_kernels.dense_kernel import ACTING_ROWS

# Acting with dense layers.


class DenseActing:
    """Acts in compiled code or numpy for few rows, for which calls of torch would take longer than the arithmetic.

    Otherwise it calls `reference`.
    """

    def __init__(self, modules: Iterable[nn.Module], reference: Callable[[Tensor], Tensor]) -> None:
        self.kernel, self.reference = acting_dense(modules), reference

    def __call__(self, features: Tensor) -> Tensor:
        """Raw outputs [N, O] for encoded observations [N, I]."""
        if len(features) > ACTING_ROWS or not features.is_cpu:
            return self.reference(features)
        return self.kernel.outputs(features)


# Epsilon-greedy acting with dense layers, for few rows: calls of torch would take longer than the network.


class GreedyActing:
    """Acts epsilon-greedily on the mean of K values per action. Actions and random numbers equal those of
    `rlsdk.networks.action_heads`."""

    def __init__(self, modules: Iterable[nn.Module], actions: int, values_per_action: int) -> None:
        """`actions` is the number of actions, which are counted from 0; `values_per_action` is K."""
        self.kernel, self.actions, self.values_per_action = acting_dense(modules), actions, values_per_action
        network = sampling_dense(modules)
        self._compiled = None if network is None else GreedyChoice(network, values_per_action)

    def fits(self, observation: Observation) -> bool:
        """Whether the observation is on the CPU, has no mask, and has few rows for the width of the layers."""
        first, compiled = observation.is_first, self._compiled
        few = first.shape[0] <= ACTING_ROWS or (compiled is not None and pays(compiled.network, first.shape[0]))
        return observation.action_mask is None and few and first.is_cpu

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Return actions int64 [N] for encoded observations [N, F]; each is random with probability `epsilon` (0-d;
        None: 0)."""
        if self._compiled is not None:
            return self._compiled(features, epsilon, generator)
        return torch.from_numpy(self._chosen(self.kernel.outputs(features).numpy(), epsilon, generator))

    def in_place(self, features: Tensor, epsilon: Tensor, generator: Generator) -> InPlace | None:
        """Return (a function of t that acts on `features[t]` [B, F], its storage of actions [T, B]); None if compiled code
        cannot."""
        compiled, readable = self._compiled, epsilon.dtype is torch.float32 and epsilon.is_cpu
        if compiled is None or not readable or not can_act_in_place(compiled.network, features):
            return None
        return compiled.in_place(features, epsilon, generator)

    def _chosen(self, values: NDArray[np.float32], epsilon: Tensor | None, generator: Generator) -> NDArray[np.int64]:
        """Return actions [N] for values [N, A * K]."""
        if (entries := self.values_per_action) > 1:
            values = np.add.reduce(values.reshape(len(values), -1, entries), -1)  # the largest sum is the largest mean
        require_choice(torch.from_numpy(values))
        found: NDArray[np.int64] = values.argmax(-1)
        if epsilon is not None:
            drawn = torch.randint(self.actions, found.shape, generator=generator).numpy()
            found = np.where(torch.rand(found.shape, generator=generator).numpy() < epsilon.numpy(), drawn, found)
        return found
