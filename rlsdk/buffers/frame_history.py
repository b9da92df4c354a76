"""Where the frames of sampled observations are stored, of a replay buffer that stores each frame once."""

from __future__ import annotations

from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.frames import stacked
from rlsdk.buffers.row_storage import RowStorage
from rlsdk.records import Observation


class FrameHistory:
    """Finds the frames of rows. The last result is stored: a sample asks for rows that may be drawn, then for their frames."""

    def __init__(self, stored: RowStorage) -> None:
        self.stored = stored
        self._last: tuple[Tensor, tuple[int, int], tuple[Tensor, Tensor]] | None = None

    def of(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(int64 [N, count], bool [N]) for flat positions int64 [N]; see `Ring.history`."""
        stored = self.stored
        assert stored.frames is not None
        now = index._version, stored.written
        if self._last is None or self._last[0] is not index or self._last[1] != now:
            self._last = index, now, stored.walk.history(index, stored.frames.count, stored.oldest)
        return self._last[2]

    def observations(self, index: Tensor, last: Tensor, following: Observation) -> tuple[Observation, Observation]:
        """(observations [N] at `index` int64 [N], what the steps at `last` int64 [N] led to), stacked.

        Args:
            index, last: flat positions.
            following: the latter's newest frames.
        """
        stored, first = self.stored, self.of(index)[0]
        assert stored.frames is not None
        history = first, first if last is index else self.of(last)[0]
        frames = tree.map_tensors(lambda leaf: leaf.flatten(0, 1), stored.storage["observation"].features)
        return stacked(stored.frames, frames, history, stored.take_without_features(index), following)
