"""What stands in front of a part of an agent."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from rlsdk.interfaces import Stateful

PartT = TypeVar("PartT", bound=Stateful)


class Around(Generic[PartT]):
    """Passes on to `inner` whatever its own class does not do."""

    def __init__(self, inner: PartT) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)
