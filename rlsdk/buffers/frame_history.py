"""Where the frames of sampled observations are stored, of a replay buffer that stores each frame once."""

from __future__ import annotations

from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.frames import stacks
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

    def observations(self, index: Tensor, last: Tensor) -> tuple[Observation, Observation]:
        """(observations [N] at flat positions `index` int64 [N], what the steps at `last` int64 [N] led to), stacked."""
        stored, first = self.stored, self.of(index)[0]
        assert stored.frames is not None
        history, after = (first, first if last is index else self.of(last)[0]), stored.walk.after(last)
        now, then = stacks(stored.flat("observation").features, history, after)
        following = stored.take_flags(after, tree.map_tensors(lambda leaf: leaf[:, -1], then))
        stored.put_finals(following, last)  # its features, the newest frames, are views of `then`
        joined = stored.frames.joined
        whole = Observation(joined(then), following.is_first, following.action_mask)
        return stored.take_flags(index, joined(now)), whole
