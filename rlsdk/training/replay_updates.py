"""Updates from a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from torch import Tensor

from rlsdk.errors import PluginError
from rlsdk.interfaces import Parts
from rlsdk.interfaces.parts import as_it_is
from rlsdk.interfaces.require_parts import require_batches
from rlsdk.kernels import fixed_layers
from rlsdk.records import Metrics
from rlsdk.runtime.seeding import Streams
from rlsdk.training.plan_errors import unlike_metrics
from rlsdk.training.priorities import Priorities
from rlsdk.training.updates_together import UpdatesTogether


class ReplayUpdates:
    """Updates the algorithm from samples of the buffer.

    If the buffer is `Prioritized`, it receives the algorithm's `td_error` after each update. Create this object once,
    before the training loop.
    """

    def __init__(self, parts: Parts, streams: Streams) -> None:
        """Check that the algorithm can use the batches of the buffer.

        Raises:
            PluginError: there is no buffer.
            SettingsError: the algorithm cannot use the batches, or the buffer is prioritised and the algorithm has no
                `td_error`.
        """
        if parts.buffer is None:
            raise PluginError(f"its plan, {type(parts.plan).__name__}, samples a memory; give Parts(buffer=...)")
        self.memory = parts.buffer
        # without normalisation the algorithm learns from the batches of the buffer unchanged
        self.sample = parts.buffer.sample if parts.preprocess_batch is as_it_is else parts.sample
        self.algorithm, self.generator = parts.algorithm, streams["replay"]
        self.priorities = Priorities.of(parts)
        self.together = UpdatesTogether.of(parts) if self.priorities is None else None
        require_batches(parts)

    @staticmethod
    def check(parts: Parts) -> None:
        """Check the parts as the constructor does, for `rlsdk.interfaces.ChecksParts`."""
        ReplayUpdates(parts, Streams(0))

    def update(
        self, count: int, batch_size: int, progress: float, each: Callable[[int], None] | None = None
    ) -> Metrics:
        """Make `count` updates and return the mean of each metric over the updates that have it.

        `each` is called after every update with the number of updates so far.
        """
        found: dict[str, list[Tensor]] = {}
        together = self.together if each is None and count > 1 else None
        with fixed_layers() if each is None else nullcontext():
            several = None if together is None else together(count, batch_size, progress, self.generator)
            for done in range(1, count + 1):
                if several is not None:
                    metrics = next(several)
                else:
                    metrics = self.algorithm.update(batch := self.sample(batch_size, self.generator), progress=progress)
                    if self.priorities is not None:
                        self.priorities.follow(batch)
                if not isinstance(metrics, Mapping):
                    raise unlike_metrics(metrics)
                for name, value in metrics.items():
                    found.setdefault(name, []).append(value)
                if each is not None:
                    each(done)
        return {name: got[0] if len(got) == 1 else sum(got[1:], got[0]) / len(got) for name, got in found.items()}
