"""The off-policy training loop: collect some steps, store them in the buffer, learn from samples of the buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rlsdk.environments.vector.endless import LONG, require_end
from rlsdk.interfaces import BuildContext, Collected, Parts, Policy, Training
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Cursor, Episode, Metrics, Report, Rollout
from rlsdk.settings.frequency import TrainFrequency
from rlsdk.settings.off_policy import OffPolicyConfig
from rlsdk.training.replay_updates import ReplayUpdates

_Acting = tuple[Policy[object, object], Callable[[Rollout[object, object]], object], int]


@dataclass(frozen=True, slots=True)
class OffPolicyPlan:
    """Collects `train_every` vector steps (with `episodes`: finished episodes), then makes `gradient_steps` updates.

    `gradient_steps` = -1 means one update per collected environment step.
    """

    train_every: int
    gradient_steps: int
    batch_size: int
    learning_starts: int
    episodes: bool = False
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["episodes"]] = "episodes"

    @staticmethod
    def of(config: OffPolicyConfig) -> OffPolicyPlan:
        """Create the plan from the hyper-parameters of an algorithm."""
        frequency = config.train_freq
        by_episode = frequency.unit == "episode"
        return OffPolicyPlan(
            frequency.count, config.gradient_steps, config.batch_size, config.learning_starts, by_episode
        )

    def with_settings(self, config: object, context: BuildContext) -> OffPolicyPlan:
        """See `rlsdk.interfaces.FollowsSettings`."""
        names = ("gradient_steps", "batch_size", "learning_starts")
        changes = {name: getattr(config, name) for name in names if hasattr(config, name)}
        if isinstance(frequency := getattr(config, "train_freq", None), TrainFrequency):
            changes |= {"train_every": frequency.count, "episodes": frequency.unit == "episode"}
        return replace(self, **changes)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.ChecksParts`."""
        ReplayUpdates.check(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every round and its updates.

        A round always has `train_every` vector steps or episodes, so the last one may pass the end, unless the training
        ends exactly: then the last one is shorter. A round that a
        callback cut short is stored, without updates. `collected(env_steps, progress)` is called after every vector
        step if the algorithm has this method, and after every round if the buffer has it.
        """
        counter = ability(training.parts.buffer, Collected)
        listener = ability(training.parts.algorithm, Collected)
        updating = ReplayUpdates(training.parts, training.streams)
        acting = training.parts.behavior_policy, updating.memory.extend, training.collector.num_envs
        while cursor.env_steps < training.end:
            before = cursor.env_steps
            steps, episodes, whole = self._collect_round(training, acting, before, listener)
            progress = training.progress(steps)
            if counter is not None:
                counter.collected(steps, progress)
            training.collector.end_round()
            metrics, updates = None, cursor.updates
            count = steps - before if self.gradient_steps < 0 else self.gradient_steps
            if whole and steps > self.learning_starts and count:
                metrics = updating.update(count, self.batch_size, progress)
                updates += count
            cursor = Cursor(steps, updates)
            yield cursor, Report(steps, updates, episodes, metrics)

    def _collect_round(
        self, training: Training, acting: _Acting, steps: int, listener: Collected | None
    ) -> tuple[int, tuple[Episode, ...], bool]:
        """Collect one round into the buffer, beginning at `steps` environment steps.

        Args:
            training: has the collector.
            acting: the policy that collects, the buffer's `extend`, the number of environments.
            steps: environment steps before the round.
            listener: the algorithm, if it has `collected`.

        Returns:
            (environment steps after the round, the episodes that ended in it, whether the round is complete).
        """
        collector, (policy, extend, num_envs) = training.collector, acting
        length = 1 if self.episodes else self.train_every
        episodes: tuple[Episode, ...] = ()
        waited, due = 0, LONG
        while True:
            # made again each time: it counts from the steps before this call, and a round of episodes makes many calls
            on_step = None if listener is None else _listening(listener, training, steps)
            rollout = collector.collect(policy, length, on_step=on_step, ends_round=False)
            extend(rollout)
            episodes += rollout.episodes
            done = len(rollout.steps.reward)
            steps += done * num_envs
            whole = done == length and (not self.episodes or len(episodes) >= self.train_every)
            whole = whole or training.ends_exactly(steps)
            if whole or rollout.stopped:
                return steps, episodes, whole
            waited = 0 if rollout.episodes else waited + done
            if waited >= due:  # the round waits for an episode that perhaps never ends
                due = require_end(getattr(collector, "env", None), "of the training", waited)

    def learn_offline(self, training: Training, count: int, batch_size: int | None) -> Metrics:
        """Make `count` updates without collecting; see `rlsdk.interfaces.LearnsOffline`.

        An algorithm with `collected` receives counts of environment steps after every update, as if steps had been
        collected. Afterwards it receives the real count.
        """
        size = self.batch_size if batch_size is None else batch_size
        updating = ReplayUpdates(training.parts, training.streams)
        listener = ability(training.parts.algorithm, Collected)
        if listener is None:
            return updating.update(count, size, 0.0)
        steps = self.train_every * max(1, training.collector.num_envs)
        share = steps / self.gradient_steps if self.gradient_steps > 0 else 1.0

        def each(done: int) -> None:
            listener.collected(training.end + int(share * done), 1.0)  # exploration schedules are at their end

        metrics = updating.update(count, size, 0.0, each)
        listener.collected(training.end, 1.0)
        return metrics


def _listening(listener: Collected, training: Training, steps: int) -> Callable[[int], None]:
    """Return a function that calls the algorithm's `collected` after every vector step of steps collected after `steps`."""

    def on_step(done: int) -> None:
        listener.collected(steps + done, training.progress(steps + done))

    return on_step
