"""The memory: recorded transitions, whose masks allow the recorded actions."""

from __future__ import annotations

from rlsdk_datasets import Episodes, RecordedTransitions


class CheckedRecordings(RecordedTransitions):
    """Samples the transitions of a data set, whose masks must allow the recorded actions."""

    _checked = False

    @property
    def episodes(self) -> Episodes:
        """The episodes that are sampled; raises like `open_episodes`, and MaskError if a mask forbids a recorded action."""
        found = super().episodes
        if not self._checked:
            # the penalty is a maximum over allowed values, which a forbidden one could exceed without limit
            found.require_masks(required=False)
            self._checked = True
        return found
