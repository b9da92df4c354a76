"""What algorithms learn from data sets with: buffers of recorded steps, the plan of offline algorithms, spaces alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NoReturn

import gymnasium
import torch
from torch import Generator, Tensor

from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import BuildContext, Parts, State, Training
from rlsdk.records import Cursor, Features, Metrics, Report, Sequences, Transitions
from rlsdk.training import ReplayUpdates
from rlsdk_datasets.dataset import Dataset
from rlsdk_datasets.episodes import Episodes, open_episodes

AT_ONCE = 4096
"""The number of observations that `observations` reads per batch."""


class _Recorded:
    """A data set as a buffer, apart from what it samples."""

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
        """The episodes that are sampled; raises like `open_episodes`, SettingsError if a part of the split is empty, and
        MaskError if the algorithm uses masks and one forbids a recorded action."""
        return self._opened()[0]

    @property
    def held_out(self) -> Episodes | None:
        """The episodes that are not sampled; None with `share = 1`. Raises like `episodes`."""
        return self._opened()[1]

    def _opened(self) -> tuple[Episodes, Episodes | None]:
        if self._split is None:
            episodes = open_episodes(self.dataset, self.context)
            # updates would take the logarithm of a forbidden action's probability, which is 0
            episodes.require_masks(required=False, used=not self.context.ignores_masks)
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
        raise UsageError(
            f"the data set {self.dataset.name!r} cannot be extended; an offline training loop does not collect"
        )

    def _drawn(self, size: int, generator: Generator) -> Tensor:
        """Positions int64 [size] of steps, each with equal probability."""
        return torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)

    def state_dict(self) -> State:
        return {"digest": self.dataset.digest}

    def load_state_dict(self, state: State) -> None:
        """Check that the state belongs to this data set, and raise UsageError if not. Nothing is restored."""
        if state.get("digest") != self.dataset.digest:
            raise UsageError(
                f"the stored memory held another data set than {self.dataset.name!r}; give the one the agent was made with"
            )


class RecordedTransitions(_Recorded):
    """Samples the transitions of a data set, each with equal probability. The file is opened at the first use.

    The buffer of an agent that was loaded without its data set is empty; such an agent can predict but not train.
    """

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement; raises like `open_episodes`."""
        return self.episodes.transitions(self._drawn(size, generator), self.gamma)


class RecordedSequences(_Recorded):
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
        super().__init__(dataset, context, gamma=gamma, share=share)
        self.length, self.burn_in = length, burn_in

    def sample(self, size: int, generator: Generator) -> Sequences[None]:
        """Draw `size` sequences with replacement, padded after the end of their episode; raises like `open_episodes`."""
        return self.episodes.sequences(self._drawn(size, generator), self.length, self.gamma, self.burn_in)


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """Makes rounds of `updates_per_round` updates with `batch_size` samples of `Parts.buffer` each.

    `learn(total_timesteps)` counts updates.
    """

    batch_size: int
    updates_per_round: int = 100
    needs_environment: ClassVar[bool] = False
    unit: ClassVar[Literal["updates"]] = "updates"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def with_settings(self, config: object, context: BuildContext) -> OfflinePlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        return replace(self, batch_size=getattr(config, "batch_size", self.batch_size))

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`. Raises SettingsError: there is no data set."""
        if parts.buffer is None:
            raise SettingsError(
                "it learns from recorded episodes: give dataset=PATH, or --dataset FILE (its build makes them Parts.buffer)"
            )
        ReplayUpdates.check(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` updates. The last round is shorter if it would pass the end."""
        updating = ReplayUpdates(training.parts, training.streams)
        while cursor.updates < training.end:
            count = min(self.updates_per_round, training.end - cursor.updates)
            progress = training.progress(cursor.updates)
            metrics = updating.update(count, self.batch_size, progress)
            cursor = replace(cursor, updates=cursor.updates + count)
            yield cursor, Report(cursor.env_steps, cursor.updates, (), metrics)

    def learn_offline(self, training: Training, count: int, batch_size: int | None) -> Metrics:
        """See `rlsdk.interfaces.PlanAbilities`."""
        size = self.batch_size if batch_size is None else batch_size
        return ReplayUpdates(training.parts, training.streams).update(count, size, 0.0)


class RecordedOnly(gymnasium.Env[object, object]):
    """Spaces for agents that learn from recorded data. `reset` and `step` raise UsageError. See `rlsdk_interchange`."""

    def __init__(self, observation_space: gymnasium.Space[object], action_space: gymnasium.Space[object]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> NoReturn:
        self._refuse()

    def step(self, action: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            "there is no environment, only recordings: use train(gradient_steps), or set_env(env) before learn, and"
            " evaluate with another environment"
        )
