"""Executors of others that have `map` and `close` only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from rlsdk.errors import SettingsError
from rlsdk.executors.serial import done_now
from rlsdk.interfaces import Executor

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def completed(made: object) -> Executor:
    """`made`, with a `submit` where it has none: the work is then done before `submit` returns.

    Raises:
        SettingsError: it cannot map.
    """
    missing = [name for name in ("map", "close") if not callable(getattr(made, name, None))]
    if missing:
        raise SettingsError(
            f"a {type(made).__name__} is not an executor: it has no {' and no '.join(missing)}; see rlsdk.interfaces.Executor"
        )
    if callable(getattr(made, "submit", None)):
        return cast("Executor", made)
    return MappingExecutor(made)


class MappingExecutor:
    """An executor made of one that only maps."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        results: list[ResultT] = self.made.map(work, items)
        return results

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """The work is done before this returns."""
        return done_now(lambda one: self.map(work, [one])[0], item)

    def close(self) -> None:
        self.made.close()
