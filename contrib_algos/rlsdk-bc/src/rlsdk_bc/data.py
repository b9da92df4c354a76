"""The recorded episodes: those for training, held-out ones, and the returns of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rlsdk.buffers import rows_in_order
from rlsdk.records import Features, Observation, Sequences, Transitions
from rlsdk_datasets import Episodes, RecordedSequences, RecordedTransitions

AT_ONCE = 4096
"""How many held-out steps are evaluated in one batch."""


class Data:
    """The recorded episodes of one agent, and the returns of their steps. Files are opened on first use."""

    def __init__(
        self,
        recorded: RecordedTransitions | RecordedSequences,
        gamma: float,
        rewards: Callable[[Tensor], Tensor],
        length: int | None,
    ) -> None:
        """`rewards`: normalizes the rewards [T] of an episode. `length`: steps of a sequence; None for single steps."""
        self.recorded, self.gamma, self.rewards, self.length = recorded, gamma, rewards, length
        self._returns: Tensor | None = None

    @property
    def held_out(self) -> Episodes | None:
        """The whole episodes that are not used for training; None if there are none."""
        return self.recorded.held_out

    def held_out_batches(self) -> Iterator[tuple[Observation, Features, Tensor | None]]:
        """Yield batches (raw observations [N, ..], actions [N, ..], whether a row begins a sequence: bool [N] or None). Every
        held-out step comes once."""
        episodes = self.held_out
        if episodes is None:
            return
        if self.length is None:
            for places in torch.split(torch.arange(episodes.steps), AT_ONCE):
                rows = episodes.transitions(places, self.gamma)
                yield rows.observation, rows.action, None
            return
        for places in torch.split(episodes.sequence_starts(self.length), max(1, AT_ONCE // self.length)):
            steps, starts, _ = rows_in_order(episodes.sequences(places, self.length, self.gamma))
            yield steps.observation, steps.action, starts

    def returns_of(self, batch: Transitions | Sequences[None]) -> Tensor:
        """The discounted sum [N] of the rewards from each step of a batch to the end of its recorded episode."""
        if self._returns is None:
            self._returns = self._found_returns().to(batch.index.device)
        if isinstance(batch, Transitions):
            return self._returns[batch.index]
        ahead = torch.arange(len(batch.steps.valid), device=batch.index.device).unsqueeze(1)
        places = (batch.index + ahead).clamp(max=len(self._returns) - 1)
        return self._returns[places.T.flatten()[batch.steps.valid.T.flatten()]]

    def _found_returns(self) -> Tensor:
        """The returns of all steps that are used for training, [S]."""
        found = []
        for episode in self.recorded.episodes:
            total, returns = 0.0, []
            for reward in reversed(self.rewards(episode.rewards).tolist()):
                total = reward + self.gamma * total
                returns.append(total)
            found += returns[::-1]
        return torch.tensor(found)
