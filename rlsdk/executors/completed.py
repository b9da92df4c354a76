"""`completed` adds the method `submit` to executors of third parties that have only `map` and `close`."""

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
    """Return `made` as an executor with `submit`. Where `made` has none, the added `submit` returns when the work is done.

    Raises:
        SettingsError: `made` has no method `map` or no method `close`.
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
    """An executor with `submit`, made from an object `made` that has only `map` and `close`."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        results: list[ResultT] = self.made.map(work, items)
        return results

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Return a finished future of `work(item)`: the work is done before this method returns."""
        return done_now(lambda one: self.map(work, [one])[0], item)

    def close(self) -> None:
        self.made.close()
