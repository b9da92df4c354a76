"""Replay memory that draws transitions the more often, the more there was to learn from them.

Source: Schaul et al. 2016, arXiv:1511.05952, proportional prioritisation with importance weights (section 3.3, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.buffers.replay import ReplayBuffer
from rlsdk.buffers.sum_tree import SumTree
from rlsdk.errors import SettingsError, UsageError
from rlsdk.parts import Facts
from rlsdk.records import Rollout, Transitions


class PrioritizedReplay:
    """A `ReplayBuffer` whose rows are drawn with probability p^alpha / sum p^alpha, where p is the last error of a row.

    Batches carry the weights (N P)^-beta, scaled so that the largest of a batch is 1, for algorithms to multiply losses by.
    `beta` grows to 1 over the training.
    """

    def __init__(
        self,
        facts: Facts,
        capacity: int,
        gamma: float,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **storage: Any,
    ) -> None:
        """`alpha`: 0 draws uniformly. `beta`: at the start. `epsilon`: added to errors. `storage`: as `ReplayBuffer`."""
        for name, value in (("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise SettingsError(f"prioritised replay: {name} = {value!r} must be a number between 0 and 1")
        self.inner = ReplayBuffer(facts, capacity, gamma, **storage)
        self.alpha, self.beta, self.epsilon, self.beta_now = alpha, beta, epsilon, beta
        self.tree = SumTree(self.inner.ring * facts.num_envs)
        self.largest = 1.0

    def reconfigure(self, config: Any) -> None:
        """As `ReplayBuffer.reconfigure`."""
        self.inner.reconfigure(config)

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required() + self.tree.nodes.nbytes

    def collected(self, env_steps: int, progress: float) -> None:
        """Told by the loop after collecting."""
        self.beta_now = self.beta + (1.0 - self.beta) * progress

    def extend(self, item: Rollout[Any, Any]) -> None:
        """Append T steps of every environment; new rows have the largest priority there ever was."""
        inner, start = self.inner, self.inner.head
        inner.extend(item)
        valid = item.steps.valid.cpu().numpy()
        rows = (start + np.arange(len(valid))) % inner.ring
        self._set_rows(rows, np.where(valid, self.largest**self.alpha, 0.0))
        if inner.shared:  # the row that only holds the newest observation
            self._set_rows(np.array([inner.head]), np.zeros((1, inner.facts.num_envs)))
        self._forget_cut_stacks()

    def _forget_cut_stacks(self) -> None:
        """Rows whose first frames were overwritten are not drawn again."""
        inner, envs, device = self.inner, self.inner.facts.num_envs, self.inner.facts.device
        if inner.frames is None or not inner.filled:
            return
        rows = (inner.oldest + torch.arange(min(inner.frames.count - 1, inner.filled), device=device)) % inner.ring
        index = (rows[:, None] * envs + torch.arange(envs, device=device)).flatten()
        gone = index[~inner.usable(index)].cpu().numpy()
        if len(gone):
            self.tree.set(gone, np.zeros(len(gone)))

    def _set_rows(self, rows: Any, values: Any) -> None:
        envs = self.inner.facts.num_envs
        self.tree.set((rows[:, None] * envs + np.arange(envs)).reshape(-1), values.reshape(-1))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """`size` transitions, one from each of as many equal shares of the total priority.

        Raises:
            UsageError: the buffer is empty.
        """
        if not self.tree.total > 0.0:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        device = self.inner.facts.device
        within = torch.rand(size, generator=generator, device=device, dtype=torch.float64).cpu().numpy()
        places = self.tree.find((np.arange(size) + within) * (self.tree.total / size))
        weight = (self.tree.values[places] * (len(self) / self.tree.total)) ** -self.beta_now
        scaled = torch.as_tensor(weight / weight.max(), dtype=torch.float32, device=device)
        return replace(self.inner.at(torch.as_tensor(places, device=device)), weight=scaled)

    def prioritize(self, index: Tensor, error: Tensor) -> None:
        """Take in the errors [N] of the rows a batch came from."""
        size = error.detach().abs().double().cpu().numpy() + self.epsilon
        self.largest = max(self.largest, float(size.max()))
        places = index.cpu().numpy()
        drawable = self.tree.values[places] > 0.0  # what cannot be drawn stays so
        self.tree.set(places, np.where(drawable, size**self.alpha, 0.0))

    def state_dict(self) -> dict[str, Any]:
        """The memory, and the priorities of its rows."""
        priorities = torch.from_numpy(self.tree.values.copy())
        return {
            "memory": self.inner.state_dict(),
            "priorities": priorities,
            "largest": self.largest,
            "beta": self.beta_now,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` took out; raises as the memory's."""
        self.inner.load_state_dict(state["memory"])
        priorities = torch.as_tensor(state["priorities"]).double().numpy()
        if priorities.shape != self.tree.values.shape:
            raise UsageError(f"{len(priorities)} stored priorities for a memory of {len(self.tree.values)} rows")
        if not np.isfinite(priorities).all() or (priorities < 0.0).any() or not np.isfinite(priorities.sum()):
            raise UsageError("stored priorities must be finite and not negative")
        if priorities[self._without_transition()].any() or (len(self) > 0) != bool(priorities.any()):
            raise UsageError("stored priorities do not belong to the stored rows")
        largest, beta = float(state["largest"]), float(state["beta"])
        if not (0.0 < largest < float("inf") and 0.0 <= beta <= 1.0):
            raise UsageError(f"stored priorities have largest = {largest} and beta = {beta}")
        self.tree.set(np.arange(len(priorities)), priorities)
        self.largest, self.beta_now = largest, beta
        self._forget_cut_stacks()

    def _without_transition(self) -> Any:
        """bool [places]: where no transition stands."""
        inner = self.inner
        empty = np.ones((inner.ring, inner.facts.num_envs), bool)
        if inner.filled:
            rows = (inner.head - 1 - np.arange(inner.filled)) % inner.ring
            empty[rows] = ~inner.storage["valid"].cpu().numpy()[rows]
        return empty.reshape(-1)
