"""The off-policy training loop: collect some steps, store them in the buffer, learn from samples of the buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.environments.vector.faults import LONG, require_end
from rlsdk.errors import PluginError, SettingsError
from rlsdk.interfaces import Algorithm, AlgorithmAbilities, BufferAbilities, BuildContext, Parts, Training
from rlsdk.interfaces.abilities import ability, require_batches, shortcut, unlike_metrics
from rlsdk.interfaces.parts import as_it_is
from rlsdk.kernels import fixed_layers
from rlsdk.records import Cursor, Episode, Metrics, Report
from rlsdk.runtime.process import Streams
from rlsdk.settings.off_policy import OffPolicyConfig
from rlsdk.settings.schedules import TrainFrequency


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
        """See `rlsdk.interfaces.PlanAbilities`."""
        names = ("gradient_steps", "batch_size", "learning_starts")
        changes = {name: getattr(config, name) for name in names if hasattr(config, name)}
        if isinstance(frequency := getattr(config, "train_freq", None), TrainFrequency):
            changes |= {"train_every": frequency.count, "episodes": frequency.unit == "episode"}
        return replace(self, **changes)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`."""
        ReplayUpdates.check(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every round and its updates.

        A round always has `train_every` vector steps or episodes, so the last one may pass the end, unless the training
        ends exactly: then the last one is shorter. A round that a
        callback cut short is stored, without updates. `collected(env_steps, progress)` is called after every vector
        step if the algorithm has this method, and after every round if the buffer has it.
        """
        collector, parts, policy = training.collector, training.parts, training.parts.behavior_policy
        counter = ability(parts.buffer, BufferAbilities, "collected")
        scheduled = ability(parts.algorithm, AlgorithmAbilities, "collected")
        updating = ReplayUpdates(parts, training.streams)
        # the length of an episode is unknown, so a round of episodes is collected step by step
        length = 1 if self.episodes else self.train_every
        while cursor.env_steps < training.end:
            steps, episodes, whole, stopped = cursor.env_steps, tuple[Episode, ...](), False, False
            waited, due = 0, LONG
            while not whole and not stopped:
                # made again each time: it counts from the steps before this call, and a round of episodes makes many calls
                on_step = None if scheduled is None else _after_each_step(scheduled, training, steps)
                rollout = collector.collect(policy, length, on_step=on_step, ends_round=False)
                updating.buffer.extend(rollout)
                episodes += rollout.episodes
                done = len(rollout.steps.reward)
                steps += done * collector.num_envs
                # a callback may have cut the rollout short
                whole = done == length and (not self.episodes or len(episodes) >= self.train_every)
                whole, stopped = whole or training.ends_exactly(steps), rollout.stopped
                waited = 0 if rollout.episodes else waited + done
                if waited >= due and not whole and not stopped:  # for an episode that perhaps never ends
                    due = require_end(getattr(collector, "env", None), "of the training", waited)
            progress = training.progress(steps)
            if counter is not None:
                counter.collected(steps, progress)
            collector.end_round()  # callbacks see the end of collecting before the update begins
            metrics, updates = None, cursor.updates
            count = steps - cursor.env_steps if self.gradient_steps < 0 else self.gradient_steps
            # a callback that ends the training inside a round expects no further update
            if whole and steps > self.learning_starts and count:
                metrics = updating.update(count, self.batch_size, progress)
                updates += count
            cursor = Cursor(steps, updates)
            yield cursor, Report(steps, updates, episodes, metrics)

    def learn_offline(self, training: Training, count: int, batch_size: int | None) -> Metrics:
        """Make `count` updates without collecting; see `rlsdk.interfaces.PlanAbilities`.

        An algorithm with `collected` receives counts of environment steps after every update, as if steps had been
        collected. Afterwards it receives the real count.
        """
        size = self.batch_size if batch_size is None else batch_size
        updating = ReplayUpdates(training.parts, training.streams)
        scheduled = ability(training.parts.algorithm, AlgorithmAbilities, "collected")
        if scheduled is None:
            return updating.update(count, size, 0.0)
        steps = self.train_every * max(1, training.collector.num_envs)
        # schedules and target networks count environment steps, so updates without steps count as if there had been
        # some
        share = steps / self.gradient_steps if self.gradient_steps > 0 else 1.0

        def each(done: int) -> None:
            scheduled.collected(training.end + int(share * done), 1.0)  # exploration schedules are at their end

        metrics = updating.update(count, size, 0.0, each)
        # the true count again, so that later steps continue from it
        scheduled.collected(training.end, 1.0)
        return metrics


def _after_each_step(algorithm: AlgorithmAbilities, training: Training, steps: int) -> Callable[[int], None]:
    """Return a function that calls the algorithm's `collected` after every vector step of steps collected after `steps`."""

    def on_step(done: int) -> None:
        algorithm.collected(steps + done, training.progress(steps + done))

    return on_step


class ReplayUpdates:
    """Updates the algorithm from samples of the buffer.

    If the buffer has `prioritize`, it receives the algorithm's `td_error` after each update. Create this object once,
    before the training loop.
    """

    def __init__(self, parts: Parts, streams: Streams) -> None:
        """Raises the errors of `check`."""
        self.check(parts)
        assert parts.buffer is not None
        self.buffer = buffer = parts.buffer
        # without normalization the algorithm learns from the batches of the buffer unchanged
        self.sample = buffer.sample if parts.preprocess_batch is as_it_is else parts.sample
        self.algorithm, self.generator = parts.algorithm, streams["replay"]
        self.prioritized = ability(buffer, BufferAbilities, "prioritize")
        self.judging = ability(parts.algorithm, AlgorithmAbilities, "td_error")
        several = shortcut(buffer, BufferAbilities, "sample_several", "sample")
        self.together: UpdatesTogether | None = None
        # priorities change with every update, so their batches cannot be drawn ahead
        if several is not None and self.prioritized is None:
            self.together = UpdatesTogether(several, parts.algorithm, parts.preprocess_batch)

    @staticmethod
    def check(parts: Parts) -> None:
        """Check that the algorithm can use the batches of the buffer.

        Raises:
            PluginError: there is no buffer.
            SettingsError: the algorithm cannot use the batches, or the buffer is prioritized and the algorithm has no
                `td_error`.
        """
        buffer, algorithm = parts.buffer, parts.algorithm
        if buffer is None:
            raise PluginError(
                f"its training loop, {type(parts.plan).__name__}, samples a buffer; pass Parts(buffer=...)"
            )
        prioritized = ability(buffer, BufferAbilities, "prioritize") is not None
        if prioritized and ability(algorithm, AlgorithmAbilities, "td_error") is None:
            raise SettingsError(
                f"its buffer, {type(buffer).__name__}, samples by the errors of the last batch, but its algorithm,"
                f" {type(algorithm).__name__}, has no td_error (rlsdk.interfaces.AlgorithmAbilities); choose a buffer without"
                " priorities, such as replay_buffer_class = 'uniform'"
            )
        require_batches(parts)

    def update(
        self, count: int, batch_size: int, progress: float, each: Callable[[int], None] | None = None
    ) -> Metrics:
        """Make `count` updates and return the mean of each metric over the updates that have it.

        `each` is called after every update with the number of updates so far.
        """
        found: dict[str, list[Tensor]] = {}
        together = self.together if each is None and count > 1 else None
        # `each` runs code of others, which may replace layers
        with fixed_layers() if each is None else nullcontext():
            several = None if together is None else together(count, batch_size, progress, self.generator)
            for done in range(1, count + 1):
                if several is not None:
                    metrics = next(several)
                else:
                    metrics = self.algorithm.update(batch := self.sample(batch_size, self.generator), progress=progress)
                    if self.prioritized is not None:
                        self.prioritized.prioritize(*self._errors_of(batch))
                # checked at every update, because a plugin may return metrics in some only
                if not isinstance(metrics, Mapping):
                    raise unlike_metrics(metrics)
                for name, value in metrics.items():
                    found.setdefault(name, []).append(value)
                if each is not None:
                    each(done)
        # a metric may be missing in some updates, as the actor's loss of TD3, so each has its own count
        return {name: got[0] if len(got) == 1 else sum(got[1:], got[0]) / len(got) for name, got in found.items()}

    def _errors_of(self, batch: object) -> tuple[Tensor, Tensor]:
        """The rows of `batch`, the batch of the last update, int64 [N], and their errors [N].

        Raises:
            PluginError: the batch has no `index`, or the algorithm has no errors.
        """
        if not isinstance(index := getattr(batch, "index", None), Tensor):
            raise PluginError(
                f"its buffer has prioritize and samples {type(batch).__name__} without `index`; give int64 [N], see Transitions"
            )
        if self.judging is None or (error := self.judging.td_error) is None:
            raise PluginError(
                f"{type(self.algorithm).__name__}.td_error is None after an update; prioritized replay needs one error per row"
            )
        return index, error


BYTES_AT_ONCE = 2**20
"""The maximum size in bytes of the batches that are sampled together, if they are more than one."""


class UpdatesTogether:
    """Makes several updates with batches that are sampled together; the result equals that of single updates bit by bit."""

    def __init__(self, buffer: BufferAbilities, algorithm: Algorithm[Any], preprocess: Callable[[Any], Any]) -> None:
        """`preprocess` converts what the buffer samples into what the algorithm learns from."""
        self.buffer, self.algorithm, self.preprocess = buffer, algorithm, preprocess
        self.shared = shortcut(algorithm, AlgorithmAbilities, "update_several", "update")
        self._row_bytes = 0

    def __call__(self, count: int, size: int, progress: float, generator: Generator) -> Iterator[object]:
        """Make `count` updates with `size` rows each and yield the metrics of each."""
        while count > 0:
            # the first batch alone shows how large a row is
            at_once = min(count, max(1, BYTES_AT_ONCE // (size * self._row_bytes))) if self._row_bytes else 1
            rows = self.preprocess(self.buffer.sample_several(at_once, size, generator))
            self._row_bytes = self._row_bytes or sum(leaf[:1].nbytes for leaf in tree.leaves(rows))
            if self.shared is not None:
                yield from self.shared.update_several(rows, at_once, progress=progress)
            else:
                for batch in tree.split(rows, size):
                    yield self.algorithm.update(batch, progress=progress)
            count -= at_once
