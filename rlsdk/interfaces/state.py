"""State that goes to files and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

State = Mapping[str, Any]
"""Nested mapping; leaves are tensors or JSON scalars. `state_dict` returns it, `load_state_dict` takes it."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose whole state can be taken out and put back, to the bit."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Any, /) -> object: ...
