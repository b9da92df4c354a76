"""Updates from a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping
from contextlib import nullcontext
from typing import Protocol

from torch import Tensor

from rlsdk.errors import PluginError, SettingsError
from rlsdk.interfaces import HasTdError, Parts, Prioritized
from rlsdk.interfaces.abilities import ability
from rlsdk.interfaces.parts import as_it_is
from rlsdk.interfaces.require_parts import require_batches
from rlsdk.kernels import fixed_layers
from rlsdk.records import Metrics
from rlsdk.runtime.seeding import Streams
from rlsdk.training.plan_errors import unlike_metrics


class IndexedBatch(Protocol):
    """A batch that names the rows of the memory it came from, as prioritised memories sample them."""

    @property
    def index(self) -> Tensor:
        """int64 [N]."""
        ...


def entries(metrics: object) -> ItemsView[str, Tensor]:
    """The names and values [] of metrics. Raises PluginError: they are not a mapping."""
    if not isinstance(metrics, Mapping):
        raise unlike_metrics(metrics)
    return metrics.items()


class ReplayUpdates:
    """Updates the algorithm from samples of the memory.

    A memory that is `Prioritized` gets the algorithm's `td_error` after each update. Make one before the loop.
    """

    def __init__(self, parts: Parts, streams: Streams) -> None:
        """Raises PluginError: there is no memory. SettingsError: the algorithm cannot use its batches, or has no `td_error`."""
        if parts.buffer is None:
            raise PluginError(f"its plan, {type(parts.plan).__name__}, samples a memory; give Parts(buffer=...)")
        self.memory = parts.buffer
        # without normalisation batches are learnt from as the memory samples them
        self.sample = parts.buffer.sample if parts.preprocess_batch is as_it_is else parts.sample
        self.algorithm, self.generator = parts.algorithm, streams["replay"]
        self.prioritized = ability(parts.buffer, Prioritized)
        self.with_error = ability(parts.algorithm, HasTdError)
        if self.prioritized is not None and self.with_error is None:
            raise SettingsError(
                f"its buffer, {type(parts.buffer).__name__}, samples by the errors of the last batch, but its algorithm,"
                f" {type(parts.algorithm).__name__}, has no td_error (rlsdk.interfaces.HasTdError); choose a memory without"
                " priorities, such as replay_buffer_class = 'uniform'"
            )
        require_batches(parts)

    def update(
        self, count: int, batch_size: int, progress: float, each: Callable[[int], None] | None = None
    ) -> Metrics:
        """`count` updates from fresh samples, `each` called with their number so far; the mean of each metric over those that
        returned it (an actor may be updated more rarely than its critics)."""
        totals: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        with fixed_layers() if each is None else nullcontext():
            for done in range(1, count + 1):
                batch = self.sample(batch_size, self.generator)
                for name, value in entries(self.algorithm.update(batch, progress=progress)):
                    totals[name] = totals[name] + value if name in totals else value
                    counts[name] = counts[name] + 1 if name in counts else 1
                if self.prioritized is not None:
                    self._prioritize(batch)
                if each is not None:
                    each(done)
        return {name: value / counts[name] for name, value in totals.items()}

    def _prioritize(self, batch: IndexedBatch) -> None:
        """Raises PluginError: the batch names no rows, or the algorithm has no error for each."""
        if not isinstance(getattr(batch, "index", None), Tensor):
            raise PluginError(
                f"its memory is Prioritized and samples {type(batch).__name__} without `index`; give int64 [N], see Transitions"
            )
        error = None if self.with_error is None else self.with_error.td_error
        if error is None:
            raise PluginError(
                f"{type(self.algorithm).__name__}.td_error is None after an update; prioritised replay needs one error per row"
            )
        assert self.prioritized is not None
        self.prioritized.prioritize(batch.index, error)
