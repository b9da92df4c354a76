"""Memories that hold a data set: what an offline algorithm samples instead of what it collected."""

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
"""Observations."""


class RecordedTransitions:
    """The transitions of a data set, each equally likely; opened when they are first sampled.

    An agent that was loaded without its data set has an empty one: it predicts.
    """

    def __init__(self, dataset: Dataset, context: BuildContext, *, gamma: float = 1.0, share: float = 1.0) -> None:
        """
        Args:
            dataset: the setting.
            context: what the parts are built from.
            gamma: the `discount` of rows whose episode does not terminate there.
            share: of the episodes, drawn at random but always the same ones; the others are `held_out`.
        """
        self.dataset, self.context, self.gamma, self.share = dataset, context, gamma, share
        self._split: tuple[Episodes, Episodes | None] | None = None

    @property
    def episodes(self) -> Episodes:
        """Those that are sampled; raises as `open_episodes`, and SettingsError where the split leaves none."""
        return self._opened()[0]

    @property
    def held_out(self) -> Episodes | None:
        """Those that are not; None with `share = 1`. Raises as `episodes`."""
        return self._opened()[1]

    def _opened(self) -> tuple[Episodes, Episodes | None]:
        if self._split is None:
            episodes = open_episodes(self.dataset, self.context)
            self._split = (episodes, None) if self.share == 1.0 else episodes.split(self.share)
        return self._split

    def observations(self) -> Iterator[Features]:
        """Every observation that is acted on, [N, ..] some thousand at a time; raises as `open_episodes`."""
        steps = self.episodes.steps
        for start in range(0, steps, AT_ONCE):
            places = torch.arange(start, min(start + AT_ONCE, steps))
            yield self.episodes.transitions(places, self.gamma).observation.features

    def episode_rewards(self) -> Iterator[Tensor]:
        """The rewards of each episode that is sampled, float32 [T]; raises as `open_episodes`."""
        for episode in self.episodes:
            yield episode.rewards

    def __len__(self) -> int:
        return 0 if self.dataset.path is None else self.episodes.steps

    def bytes_required(self) -> int:
        """0: recordings are there already."""
        return 0

    def extend(self, item: object) -> NoReturn:
        """Raises UsageError: recordings do not grow."""
        raise UsageError(f"the data set {self.dataset.name!r} cannot be extended; an offline plan does not collect")

    def sample(self, size: int, generator: Generator) -> Transitions:
        """`size` transitions drawn with replacement; raises as `open_episodes`."""
        places = torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)
        return self.episodes.transitions(places, self.gamma)

    def state_dict(self) -> State:
        return {"digest": self.dataset.digest}

    def load_state_dict(self, state: State) -> None:
        """Nothing changes; raises UsageError when the state is of another data set."""
        require_same(self.dataset, state)


class RecordedSequences:
    """Sequences of a data set, each start equally likely; as `RecordedTransitions` otherwise."""

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
        """`length`: rows T, burn-in included. `burn_in`: rows whose `loss_mask` is False."""
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
        """Float32 [T] of each episode; see `RecordedTransitions.episode_rewards`."""
        return self.rows.episode_rewards()

    def __len__(self) -> int:
        return len(self.rows)

    def bytes_required(self) -> int:
        """0: recordings are there already."""
        return 0

    def extend(self, item: object) -> NoReturn:
        """Raises UsageError: recordings do not grow."""
        self.rows.extend(item)

    def sample(self, size: int, generator: Generator) -> Sequences[None]:
        """`size` sequences drawn with replacement, padded after their episode's end; raises as `open_episodes`."""
        places = torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)
        return self.episodes.sequences(places, self.length, self.rows.gamma, self.burn_in)

    def state_dict(self) -> State:
        return self.rows.state_dict()

    def load_state_dict(self, state: State) -> None:
        """See `RecordedTransitions.load_state_dict`."""
        self.rows.load_state_dict(state)


def require_same(dataset: Dataset, state: State) -> None:
    """Raises UsageError when a stored memory held another data set."""
    if state.get("digest") != dataset.digest:
        raise UsageError(
            f"the stored memory held another data set than {dataset.name!r}; give the one the agent was made with"
        )
