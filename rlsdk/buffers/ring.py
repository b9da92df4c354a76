"""Walking along the episodes in a replay buffer's ring."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """Flat positions: `rows` rows of `envs` environments each, written round and round; `first` bool [rows * envs] is True
    where an episode begins."""

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
        """(positions [N, count] of the last steps up to each of `index` [N]; whether all are there, bool [N]).

        Before an episode has as many, its first one is repeated. `oldest` is the row before which all is forgotten.
        """
        if count == 1:
            return index.unsqueeze(1), torch.ones_like(index, dtype=torch.bool)
        back = torch.arange(count, device=index.device)
        at = (index.unsqueeze(1) - self.envs * back[:-1]) % (self.rows * self.envs)  # newest first
        begins = self.first.index_select(0, at.flatten()).view(at.shape)
        goes_back = (~(begins | (at // self.envs == oldest))).cumprod(1)
        steps = goes_back.sum(1, keepdim=True)
        # a walk that ends before `count - 1` steps ends at an episode's beginning, or where all is forgotten
        ends = steps.clamp(max=count - 2)
        whole = (steps == count - 1) | begins.gather(1, ends)
        at = (index.unsqueeze(1) - self.envs * torch.minimum(back, steps)) % (self.rows * self.envs)
        return at.flip(1), whole.squeeze(1)

    def ahead(
        self, index: Tensor, n_steps: int, newest: int, columns: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(sum of discounted rewards, discount of what follows, position of the last step) of up to `n_steps` steps from
        `index` [N] on: fewer where the episode ends before, or the row `newest` is reached.

        `columns` are rewards, discounts and whether a row counts, each [rows * envs].
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
