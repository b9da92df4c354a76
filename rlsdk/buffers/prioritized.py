"""Prioritised experience replay: a replay buffer that samples transitions in proportion to their last error.

Source: Schaul et al. 2016, arXiv:1511.05952, proportional prioritisation with importance weights (section 3.3, algorithm 1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rlsdk.buffers.documented_members import explains_documented_members
from rlsdk.buffers.replay import HasGamma, NStepOptions, ReplayBuffer
from rlsdk.buffers.sum_tree import SumTree
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import BuildContext, State
from rlsdk.records import Rollout, Transitions

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@explains_documented_members
class PrioritizedReplay:
    """A `ReplayBuffer` that samples a row with probability P = p^alpha / sum p^alpha, where p is the last error of the row.

    Batches contain importance weights (N P)^-beta, scaled so that the largest in a batch is 1. Algorithms multiply losses by
    these weights. `beta` grows linearly to 1 over the training.
    """

    def __init__(
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **storage: Unpack[NStepOptions],
    ) -> None:
        """
        Args:
            context: the spaces, device and number of environments that the buffer is built for.
            capacity: the number of transitions, over all environments.
            gamma: the discount factor.
            alpha: the exponent of priorities; 0 samples uniformly.
            beta: the exponent of importance weights at the start of training.
            epsilon: a constant that is added to the absolute errors.
            storage: options of `ReplayBuffer`.
        """
        for name, value in (("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise SettingsError(f"prioritised replay: {name} = {value!r} must be a number between 0 and 1")
        self.inner = ReplayBuffer(context, capacity, gamma, **storage)
        self.alpha, self.beta, self.epsilon, self.beta_now = alpha, beta, epsilon, beta
        self.tree = SumTree(self.inner.stored.ring * context.num_envs)
        self.largest = 1.0

    def reconfigure(self, config: HasGamma) -> None:
        """See `ReplayBuffer.reconfigure`."""
        self.inner.reconfigure(config)

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required() + self.tree.nodes.nbytes

    def collected(self, env_steps: int, progress: float) -> None:
        """Update beta for the `progress` of the training, from 0 to 1; the training loop calls this after collecting."""
        self.beta_now = self.beta + (1.0 - self.beta) * progress

    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; new rows get the largest priority so far."""
        inner, start = self.inner, self.inner.stored.head
        inner.extend(item)
        valid = item.steps.valid.cpu().numpy()
        rows = (start + np.arange(len(valid))) % inner.stored.ring
        self._set_rows(rows, np.where(valid, self.largest**self.alpha, 0.0))
        if inner.stored.shared:  # this row holds only the newest observation
            self._set_rows(np.array([inner.stored.head]), np.zeros((1, inner.context.num_envs)))
        self._forget_cut_stacks()

    def _forget_cut_stacks(self) -> None:
        """Set the priority of rows to 0 if some of their stacked frames were overwritten, so that they are not sampled."""
        inner, envs, device = self.inner, self.inner.context.num_envs, self.inner.context.device
        if inner.stored.frames is None or not inner.stored.filled:
            return
        rows = (
            inner.stored.oldest + torch.arange(min(inner.stored.frames.count - 1, inner.stored.filled), device=device)
        ) % inner.stored.ring
        index = (rows[:, None] * envs + torch.arange(envs, device=device)).flatten()
        gone = index[~inner.usable(index)].cpu().numpy()
        if len(gone):
            self.tree.set(gone, np.zeros(len(gone)))

    def _set_rows(self, rows: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Set the priorities of the rows [T] to `values` [T, B]."""
        envs = self.inner.context.num_envs
        self.tree.set((rows[:, None] * envs + np.arange(envs)).reshape(-1), values.reshape(-1))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions: one from each of `size` equal intervals of the summed priorities (stratified sampling).

        Raises:
            UsageError: the buffer is empty.
        """
        if not self.tree.total > 0.0:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        device = self.inner.context.device
        within = torch.rand(size, generator=generator, device=device, dtype=torch.float64).cpu().numpy()
        places = self.tree.find((np.arange(size) + within) * (self.tree.total / size))
        weight = (self.tree.values[places] * (len(self) / self.tree.total)) ** -self.beta_now
        scaled = torch.as_tensor(weight / weight.max(), dtype=torch.float32, device=device)
        return replace(self.inner.at(torch.as_tensor(places, device=device)), weight=scaled)

    def prioritize(self, index: Tensor, error: Tensor) -> None:
        """Set the priorities of the rows at `index` int64 [N] from their errors [N]; NaN and infinite errors are ignored."""
        size = error.detach().abs().double().cpu().numpy() + self.epsilon
        places = index.cpu().numpy()
        if not np.isfinite(size.max()):  # with a NaN in the tree, no row could be sampled
            known = np.isfinite(size)
            size, places = size[known], places[known]
            if not len(size):
                return
        self.largest = max(self.largest, float(size.max()))
        drawable = self.tree.values[places] > 0.0  # rows that cannot be sampled keep priority 0
        self.tree.set(places, np.where(drawable, size**self.alpha, 0.0))

    def state_dict(self) -> State:
        """The state of the buffer, and the priorities of its rows."""
        priorities = torch.from_numpy(self.tree.values.copy())
        return {
            "memory": self.inner.state_dict(),
            "priorities": priorities,
            "largest": self.largest,
            "beta": self.beta_now,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            UsageError: the state does not fit this buffer; see also `replay_state.put_back`.
        """
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

    def _without_transition(self) -> NDArray[np.bool_]:
        """Whether a position of the ring has no transition, bool [positions]."""
        inner = self.inner
        empty = np.ones((inner.stored.ring, inner.context.num_envs), bool)
        if inner.stored.filled:
            rows = (inner.stored.head - 1 - np.arange(inner.stored.filled)) % inner.stored.ring
            empty[rows] = ~inner.stored.storage["valid"].cpu().numpy()[rows]
        return empty.reshape(-1)
