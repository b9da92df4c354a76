"""Finds earlier and later steps of episodes in the ring of a replay buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """A ring buffer of `rows` rows for `envs` environments. A flat position is row * envs + environment; `first`
    bool [rows * envs] is True where an episode begins."""

    rows: int
    envs: int
    first: Tensor

    def after(self, index: Tensor) -> Tensor:
        """Positions int64 [N] one step after `index` int64 [N]."""
        return (index + self.envs) % (self.rows * self.envs)

    def before(self, index: Tensor) -> Tensor:
        """Positions int64 [N] one step before `index` int64 [N]."""
        return (index - self.envs) % (self.rows * self.envs)

    def history(self, index: Tensor, count: int, oldest: int) -> tuple[Tensor, Tensor]:
        """(positions [N, count] of the last `count` steps up to each of `index` [N], whether all of them are stored, bool [N]).

        If the episode has fewer steps so far, its first step is repeated. `oldest` is the row of the oldest stored steps.
        """
        at, first = _array(index), _array(self.first)
        steps, stays = [at], first[at] & False
        for _ in range(count - 1):
            stays = first[at] | (at // self.envs == oldest)
            at = (at - self.envs * ~stays) % (self.rows * self.envs)
            steps.append(at)
        whole = first[at] | ~stays  # the history begins at the start of an episode, or was not cut at the oldest row
        if isinstance(at, Tensor):
            return torch.stack(steps[::-1], 1), whole
        positions = np.empty((len(index), count), np.int64)
        for column, found in enumerate(reversed(steps)):
            positions[:, column] = found
        return torch.from_numpy(positions), torch.from_numpy(whole)

    def ahead(
        self, index: Tensor, n_steps: int, newest: int, columns: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(sum of discounted rewards, discount after the last step, position of the last step), each [N], of `n_steps` steps
        from `index` [N] on. There are fewer steps if the episode ends earlier or the row `newest` is reached.

        `columns` are the rewards, the discounts and `valid`, each [rows * envs].
        """
        rewards, discounts, valid = columns
        reward, discount, last = rewards[index], discounts[index], index
        going = torch.ones_like(index, dtype=torch.bool)
        for _ in range(n_steps - 1):
            following = self.after(last)
            going = going & (last // self.envs != newest) & ~self.first[following] & valid[following]
            reward = torch.where(going, reward + discount * rewards[following], reward)
            discount = torch.where(going, discount * discounts[following], discount)
            last = torch.where(going, following, last)
        return reward, discount, last


def _array(values: Tensor) -> Any:
    """On the CPU a numpy view [..] of the tensor: numpy takes a third of torch's time for a few numbers; else the tensor."""
    return values.numpy() if values.device.type == "cpu" else values
