"""The memory of Dyna: single steps with flat observations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import State
from rlsdk.records import Rollout, successors


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """N steps, with observations float [N, F] as from the environment."""

    observation: Tensor
    action: Tensor  # int64 [N]
    reward: Tensor  # float [N]
    next_observation: Tensor
    terminated: Tensor  # bool [N]


class MoveMemory:
    """The last `capacity` steps, each equally likely to be sampled."""

    def __init__(self, capacity: int, features: int, device: str) -> None:
        self.capacity, self.features, self.device = capacity, features, device
        self.rows = torch.zeros(0, 2 * features + 3, device=device)
        self.oldest = 0

    def __len__(self) -> int:
        return len(self.rows)

    def bytes_required(self) -> int:
        return self.capacity * (2 * self.features + 3) * 4

    def extend(self, item: Rollout[object, object]) -> None:
        """Append the valid steps of a rollout [T, B]."""
        steps = item.steps
        columns = (
            steps.observation.features.flatten(2),
            steps.action.float().unsqueeze(-1),
            steps.reward.unsqueeze(-1),
            successors(item).features.flatten(2),
            steps.terminated.float().unsqueeze(-1),
        )
        new = torch.cat([column.float() for column in columns], -1)[steps.valid]
        free = self.capacity - len(self.rows)
        self.rows = torch.cat([self.rows, new[:free]])
        for row in new[free:]:
            self.rows[self.oldest] = row
            self.oldest = (self.oldest + 1) % self.capacity

    def sample(self, size: int, generator: Generator) -> Moves:
        """`size` steps, drawn with replacement."""
        index = torch.randint(len(self.rows), (size,), generator=generator, device=self.device)
        widths = [self.features, 1, 1, self.features, 1]
        observation, action, reward, following, terminated = torch.split(self.rows[index], widths, -1)
        return Moves(
            observation, action.long().squeeze(-1), reward.squeeze(-1), following, terminated.squeeze(-1) > 0.5
        )

    def state_dict(self) -> State:
        return {"rows": self.rows, "oldest": self.oldest}

    def load_state_dict(self, state: State, /) -> None:
        rows = state["rows"].to(self.rows)
        if rows.dim() != 2 or rows.shape[1] != self.rows.shape[1] or len(rows) > self.capacity:
            raise ValueError(f"stored steps of shape {tuple(rows.shape)}; this memory has rows of {self.rows.shape[1]}")
        self.rows, self.oldest = rows.clone(), int(state["oldest"]) % self.capacity
