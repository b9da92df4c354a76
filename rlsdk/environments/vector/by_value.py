"""Pickling of values for other processes, including functions that cannot be imported, such as lambdas."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from gymnasium.vector.utils import CloudpickleWrapper

T = TypeVar("T")


class ByValue(Generic[T]):
    """A value that is pickled by value with cloudpickle. A call of this object returns the value.

    The value is pickled only once, even if it is sent several times.
    """

    def __init__(self, value: T) -> None:
        self._inner: CloudpickleWrapper[Any] = CloudpickleWrapper(lambda: value)
        self._pickled: bytes | None = None

    def __call__(self) -> T:
        value: T = self._inner()
        return value

    def __getstate__(self) -> bytes:
        if self._pickled is None:
            self._pickled = self._inner.__getstate__()
        return self._pickled

    def __setstate__(self, pickled: bytes) -> None:
        self._inner, self._pickled = CloudpickleWrapper.__new__(CloudpickleWrapper), None
        self._inner.__setstate__(pickled)
