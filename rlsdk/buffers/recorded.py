"""Buffers that contain a data set: offline algorithms sample from them instead of from collected steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import torch
from torch import Generator, Tensor

from rlsdk.buffers.episodes import Episodes, open_episodes
from rlsdk.errors import UsageError
from rlsdk.interfaces import BuildContext, State
from rlsdk.records import Features, Sequences, Transitions
from rlsdk.settings.dataset import Dataset

AT_ONCE = 4096
"""The number of observations that `observations` reads per batch."""


class RecordedTransitions:
    """Samples the transitions of a data set, each with equal probability. The file is opened at the first use.

    The buffer of an agent that was loaded without its data set is empty; such an agent can predict but not train.
    """

    def __init__(self, dataset: Dataset, context: BuildContext, *, gamma: float = 1.0, share: float = 1.0) -> None:
        """
        Args:
            dataset: the setting `dataset` of the agent.
            context: the context that the agent's parts are built from.
            gamma: the `discount` of transitions that do not terminate their episode.
            share: the fraction of the episodes that are sampled; the others are `held_out`. The random split has a fixed seed.
        """
        self.dataset, self.context, self.gamma, self.share = dataset, context, gamma, share
        self._split: tuple[Episodes, Episodes | None] | None = None

    @property
    def episodes(self) -> Episodes:
        """The episodes that are sampled; raises like `open_episodes`, and SettingsError if a part of the split is empty."""
        return self._opened()[0]

    @property
    def held_out(self) -> Episodes | None:
        """The episodes that are not sampled; None with `share = 1`. Raises like `episodes`."""
        return self._opened()[1]

    def _opened(self) -> tuple[Episodes, Episodes | None]:
        if self._split is None:
            episodes = open_episodes(self.dataset, self.context)
            self._split = (episodes, None) if self.share == 1.0 else episodes.split(self.share)
        return self._split

    def observations(self) -> Iterator[Features]:
        """Yield the observations of all sampled steps in batches [N, ..] of at most `AT_ONCE`; raises like `open_episodes`."""
        steps = self.episodes.steps
        for start in range(0, steps, AT_ONCE):
            places = torch.arange(start, min(start + AT_ONCE, steps))
            yield self.episodes.transitions(places, self.gamma).observation.features

    def episode_rewards(self) -> Iterator[Tensor]:
        """Yield the rewards float32 [T] of each sampled episode; raises like `open_episodes`."""
        for episode in self.episodes:
            yield episode.rewards

    def __len__(self) -> int:
        return 0 if self.dataset.path is None else self.episodes.steps

    def bytes_required(self) -> int:
        """0, because the recordings are in a file and no memory is allocated for rows."""
        return 0

    def extend(self, item: object) -> NoReturn:
        """Raise UsageError: a data set cannot be extended."""
        raise UsageError(f"the data set {self.dataset.name!r} cannot be extended; an offline plan does not collect")

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement; raises like `open_episodes`."""
        places = torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)
        return self.episodes.transitions(places, self.gamma)

    def state_dict(self) -> State:
        return {"digest": self.dataset.digest}

    def load_state_dict(self, state: State) -> None:
        """Check that the state belongs to this data set, and raise UsageError if not. Nothing is restored."""
        require_same(self.dataset, state)


class RecordedSequences:
    """Samples sequences of a data set; each first step has equal probability. Otherwise like `RecordedTransitions`."""

    def __init__(
        self,
        dataset: Dataset,
        context: BuildContext,
        *,
        length: int,
        burn_in: int = 0,
        gamma: float = 1.0,
        share: float = 1.0,
    ) -> None:
        """`length`: the number of steps T with the burn-in. `burn_in`: the number of first steps whose `loss_mask` is False.
        The other arguments are those of `RecordedTransitions`."""
        self.length, self.burn_in = length, burn_in
        self.rows = RecordedTransitions(dataset, context, gamma=gamma, share=share)

    @property
    def held_out(self) -> Episodes | None:
        """See `RecordedTransitions.held_out`."""
        return self.rows.held_out

    @property
    def episodes(self) -> Episodes:
        """See `RecordedTransitions.episodes`."""
        return self.rows.episodes

    def observations(self) -> Iterator[Features]:
        """See `RecordedTransitions.observations`."""
        return self.rows.observations()

    def episode_rewards(self) -> Iterator[Tensor]:
        """Yield the rewards float32 [T] of each sampled episode; see `RecordedTransitions.episode_rewards`."""
        return self.rows.episode_rewards()

    def __len__(self) -> int:
        return len(self.rows)

    def bytes_required(self) -> int:
        """0, because the recordings are in a file and no memory is allocated for rows."""
        return 0

    def extend(self, item: object) -> NoReturn:
        """Raise UsageError: a data set cannot be extended."""
        self.rows.extend(item)

    def sample(self, size: int, generator: Generator) -> Sequences[None]:
        """Draw `size` sequences with replacement, padded after the end of their episode; raises like `open_episodes`."""
        places = torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)
        return self.episodes.sequences(places, self.length, self.rows.gamma, self.burn_in)

    def state_dict(self) -> State:
        return self.rows.state_dict()

    def load_state_dict(self, state: State) -> None:
        """See `RecordedTransitions.load_state_dict`."""
        self.rows.load_state_dict(state)


def require_same(dataset: Dataset, state: State) -> None:
    """Raise UsageError if the stored state of a buffer belongs to another data set."""
    if state.get("digest") != dataset.digest:
        raise UsageError(
            f"the stored memory held another data set than {dataset.name!r}; give the one the agent was made with"
        )
