"""The recorded steps of the expert, prepared for the discriminator."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Generator

from rlsdk.interfaces import BuildContext, State, Stateful
from rlsdk.records import Features
from rlsdk_datasets import Dataset, RecordedTransitions


class ExpertSteps:
    """Pairs of observation and action of a data set.

    With `normalize`, observations are normalized by the statistics that the rollout was collected with, not by newer ones.
    Otherwise the discriminator could recognize the expert by the difference.
    """

    def __init__(self, dataset: Dataset, context: BuildContext, generator: Generator) -> None:
        self.recorded, self.context, self.generator = RecordedTransitions(dataset, context), context, generator
        self.normalizer = deepcopy(context.observation_normalizer)

    def require(self) -> None:
        """Open and check the data set. Raises UsageError, ArtifactError, UnsupportedSpaceError: as `open_episodes`."""
        # the first read of a column checks all of it
        self.recorded.episodes.transitions(torch.zeros(1, dtype=torch.int64), 1.0)

    def sample(self, size: int) -> tuple[Features, Features]:
        """Draw N = `size` steps with replacement. Returns (observations, normalized like those of the rollout; actions in
        environment units). Raises the same errors as `require`."""
        rows = self.recorded.sample(size, self.generator)
        return self.normalizer(rows.observation.features), rows.action

    def rollout_ended(self) -> None:
        """Copy the current statistics, with which the next rollout is collected."""
        self.normalizer = deepcopy(self.context.observation_normalizer)

    def state_dict(self) -> State:
        """The statistics that the next rollout is collected with."""
        return self.normalizer.state_dict() if isinstance(self.normalizer, Stateful) else {}

    def load_state_dict(self, state: Mapping[str, State]) -> None:
        """Load the statistics. Raises ValueError: they have other shapes."""
        if isinstance(self.normalizer, Stateful):
            self.normalizer.load_state_dict(state)
