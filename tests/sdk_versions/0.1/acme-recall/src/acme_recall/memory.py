"""A memory of its own, with records of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rlsdk.interfaces import State
from rlsdk.records import Rollout, successors
from torch import Generator, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """N steps."""

    seen: Tensor  # float [N, F], an observation as numbers
    action: Tensor  # int64 [N], as the environment takes it
    reward: Tensor  # float [N]
    following: Tensor  # float [N, F]
    goes_on: Tensor  # float [N], 0 where the episode terminated


class Memory:
    """The last `capacity` steps."""

    def __init__(self, capacity: int, features: int, device: str) -> None:
        self.capacity, self.features, self.device = capacity, features, device
        self.rows = torch.zeros(0, 2 * features + 3, device=device)

    def __len__(self) -> int:
        return len(self.rows)

    def bytes_required(self) -> int:
        return self.capacity * (2 * self.features + 3) * 4

    def extend(self, item: Rollout[object, object]) -> None:
        """Append the valid steps of a rollout [T, B]."""
        steps = item.steps
        columns = (
            steps.observation.features.float().reshape(*steps.reward.shape, -1),
            steps.action.float().unsqueeze(-1),
            steps.reward.unsqueeze(-1),
            successors(item).features.float().reshape(*steps.reward.shape, -1),
            (~steps.terminated).float().unsqueeze(-1),
        )
        new = torch.cat(columns, -1)[steps.valid].to(self.rows)
        self.rows = torch.cat([self.rows, new])[-self.capacity :]

    def sample(self, size: int, generator: Generator) -> Steps:
        """`size` steps, drawn with replacement."""
        index = torch.randint(len(self.rows), (size,), generator=generator, device=self.device)
        widths = [self.features, 1, 1, self.features, 1]
        seen, action, reward, following, goes_on = torch.split(self.rows[index], widths, -1)
        return Steps(seen, action.long().squeeze(-1), reward.squeeze(-1), following, goes_on.squeeze(-1))

    def state_dict(self) -> State:
        return {"rows": self.rows}

    def load_state_dict(self, state: State, /) -> None:
        rows = state["rows"].to(self.rows)
        if rows.dim() != 2 or rows.shape[1] != self.rows.shape[1] or len(rows) > self.capacity:
            raise ValueError(f"stored steps of shape {tuple(rows.shape)}; this memory has rows of {self.rows.shape[1]}")
        self.rows = rows.clone()
