"""Makes several updates whose batches are sampled together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Generator

from rlsdk import tree
from rlsdk.interfaces import Algorithm, Parts, SamplesSeveral, UpdatesSeveral
from rlsdk.interfaces.abilities import shortcut

BYTES_AT_ONCE = 2**20
"""The maximum size in bytes of the batches that are sampled together, if they are more than one."""


class UpdatesTogether:
    """Makes several updates with batches that are sampled together; the result equals that of single updates bit by bit."""

    def __init__(
        self, memory: SamplesSeveral[Any], algorithm: Algorithm[Any], preprocess: Callable[[Any], Any]
    ) -> None:
        """`preprocess` converts what the buffer samples into what the algorithm learns from."""
        self.memory, self.algorithm, self.preprocess = memory, algorithm, preprocess
        self.shared = shortcut(algorithm, UpdatesSeveral, "update")
        self._row_bytes = 0

    @classmethod
    def of(cls, parts: Parts) -> UpdatesTogether | None:
        """Return the `UpdatesTogether` of these parts; None if the buffer has no `sample_several`."""
        memory = shortcut(parts.buffer, SamplesSeveral, "sample")
        return None if memory is None else cls(memory, parts.algorithm, parts.preprocess_batch)

    def __call__(self, count: int, size: int, progress: float, generator: Generator) -> Iterator[object]:
        """Make `count` updates with `size` rows each and yield the metrics of each."""
        while count > 0:
            at_once = min(count, max(1, BYTES_AT_ONCE // (size * self._row_bytes))) if self._row_bytes else 1
            rows = self.preprocess(self.memory.sample_several(at_once, size, generator))
            self._row_bytes = self._row_bytes or sum(leaf[:1].nbytes for leaf in tree.leaves(rows))
            if self.shared is not None:
                yield from self.shared.update_several(rows, at_once, progress=progress)
            else:
                for batch in tree.split(rows, size):
                    yield self.algorithm.update(batch, progress=progress)
            count -= at_once
