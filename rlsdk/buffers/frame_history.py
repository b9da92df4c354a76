"""Finds the frames of sampled observations in a replay buffer that stores each frame once."""

from __future__ import annotations

from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.frames import stacks
from rlsdk.buffers.row_storage import RowStorage
from rlsdk.records import Observation


class FrameHistory:
    """Finds the positions of the frames of rows. The last result is cached, because sampling needs it twice: to check that the
    rows may be sampled, and to read their frames."""

    def __init__(self, stored: RowStorage) -> None:
        self.stored = stored
        self._last: tuple[Tensor, tuple[int, int], tuple[Tensor, Tensor]] | None = None

    def of(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(positions of the frames int64 [N, count], whether all exist bool [N]) of the rows at flat positions int64 [N]; see
        `Ring.history`."""
        stored = self.stored
        assert stored.frames is not None
        now = index._version, stored.written
        if self._last is None or self._last[0] is not index or self._last[1] != now:
            self._last = index, now, stored.walk.history(index, stored.frames.count, stored.oldest)
        return self._last[2]

    def observations(self, index: Tensor, last: Tensor) -> tuple[Observation, Observation]:
        """(observations [N] at flat positions `index`, next observations [N] of the steps at `last`), with stacked frames.

        Both positions are int64 [N].
        """
        stored, first = self.stored, self.of(index)[0]
        assert stored.frames is not None
        history, after = (first, first if last is index else self.of(last)[0]), stored.walk.after(last)
        now, then = stacks(stored.flat("observation").features, history, after)
        following = stored.take_flags(after, tree.map_tensors(lambda leaf: leaf[:, -1], then))
        stored.put_finals(following, last)  # changes `then` too: the features of `following` are views of it
        joined = stored.frames.joined
        whole = Observation(joined(then), following.is_first, following.action_mask)
        return stored.take_flags(index, joined(now)), whole
