"""The Protocol of objects whose state is saved in files and restored from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

State = Mapping[str, Any]
"""A nested mapping whose leaves are tensors or JSON scalars. `state_dict` returns it, `load_state_dict` takes it."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose complete state can be saved and restored exactly, bit by bit."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Any, /) -> object: ...
