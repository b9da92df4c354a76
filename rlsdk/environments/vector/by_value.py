"""Pickling values for other processes, among them functions that no module holds."""

from __future__ import annotations

from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper


class ByValue(CloudpickleWrapper):
    """Pickled by value, and once only however often it is sent; calling it gives the value."""

    _pickled: Any = None  # of the class: one that was unpickled has none of its own, and may be sent on

    def __init__(self, value: Any) -> None:
        super().__init__(lambda: value)

    def __getstate__(self) -> Any:
        if self._pickled is None:
            self._pickled = super().__getstate__()
        return self._pickled
