"""The dueling head: values of actions from a value of the observation and advantages.

Source: Wang et al. 2016, arXiv:1511.06581, equation 9.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DuelingHead(nn.Module):
    """Computes Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a') for each choice: features [N, F] -> [N, A * K]."""

    def __init__(self, inputs: int, sizes: Sequence[int], values_per_action: int = 1) -> None:
        """`sizes` are the numbers of values of each choice, A in total; `values_per_action` is K."""
        super().__init__()
        self.sizes, self.values_per_action = tuple(sizes), values_per_action
        self.value = nn.Linear(inputs, len(self.sizes) * values_per_action)
        self.advantage = nn.Linear(inputs, sum(self.sizes) * values_per_action)

    def forward(self, features: Tensor) -> Tensor:
        rows = features.shape[0]  # `len` would fix the number of rows of an exported policy
        values = self.value(features).view(rows, len(self.sizes), 1, self.values_per_action)
        advantages = self.advantage(features).view(rows, -1, self.values_per_action).split(self.sizes, 1)
        found = [values[:, i] + own - own.mean(1, keepdim=True) for i, own in enumerate(advantages)]
        return torch.cat(found, 1).flatten(1)
