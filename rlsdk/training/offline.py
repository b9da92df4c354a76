"""The offline training loop: learn from a buffer that is already filled, without an environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, Training
from rlsdk.records import Cursor, Metrics, Report
from rlsdk.training.replay_updates import ReplayUpdates


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
        """See `rlsdk.interfaces.FollowsSettings`."""
        return replace(self, batch_size=getattr(config, "batch_size", self.batch_size))

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.ChecksParts`. Raises SettingsError: there is no data set."""
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
        """See `rlsdk.interfaces.LearnsOffline`."""
        size = self.batch_size if batch_size is None else batch_size
        return ReplayUpdates(training.parts, training.streams).update(count, size, 0.0)
