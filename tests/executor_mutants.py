"""Executors with one bug each, named by `tests.executor_mutants:NAME`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import numpy as np

from rlsdk.errors import WorkError
from rlsdk.executors import SerialExecutor
from rlsdk.runs import RunRequest
from rlsdk_parallel.executors import StatefulHere

Work = Callable[[Any], Any]


class Serial(SerialExecutor):
    """A correct executor, which the mutants change."""

    def __init__(self, workers: int) -> None:
        pass


class Unordered(Serial):
    """Returns the results in reverse order."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        return super().map(work, items)[::-1]


class Wrapping(Serial):
    """Raises every exception as a WorkError."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        try:
            return super().map(work, items)
        except Exception as error:
            raise WorkError(str(error)) from None


class Finishing(Serial):
    """Runs all items before it raises the first exception."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        futures = [self.submit(work, item) for item in items]
        return [future.result() for future in futures]


class Exhausted(Serial):
    """Refuses all work after an exception."""

    failed = False

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        if self.failed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        try:
            return super().map(work, items)
        except Exception:
            self.failed = True
            raise


class Forked(Serial):
    """Runs each item in a forked process, at most `attempts` times."""

    attempts = 1

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        return [self.once(work, item) for item in items]

    def once(self, work: Work, item: Any) -> Any:
        context = multiprocessing.get_context("fork")
        for _ in range(self.attempts):
            mine, theirs = context.Pipe()
            process = context.Process(target=lambda pipe: pipe.send(work(item)), args=(theirs,))
            process.start()
            theirs.close()
            process.join()
            if process.exitcode == 0:
                return mine.recv()
        raise WorkError("the process died")


class Unrepaired(Forked):
    """Does not repeat an item whose worker died."""


class Stubborn(Forked):
    """Tries an item that ends its worker thirty times."""

    attempts = 30


class Raw(Serial):
    """Raises the error of pickle for work that cannot be pickled."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        if "lambda" in getattr(work, "__qualname__", ""):
            raise AttributeError("Can't pickle local object")
        return super().map(work, items)


class Rounding(Serial):
    """Returns arrays as float32, so that float64 numbers lose digits."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        found = super().map(work, items)
        return [answer.astype(np.float32) if isinstance(answer, np.ndarray) else answer for answer in found]


class Locked(Serial):
    """Refuses `map` inside work that `map` runs."""

    mapping = False

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        if Locked.mapping:
            raise RuntimeError("daemonic processes are not allowed to have children")
        Locked.mapping = True
        try:
            return super().map(work, items)
        finally:
            Locked.mapping = False


class Swallowing(Serial):
    """Gives the exception of a future as its result."""

    def submit(self, work: Work, item: Any) -> Future[Any]:
        future = super().submit(work, item)
        if (error := future.exception()) is not None:
            future = Future()
            future.set_result(error)
        return future


class Uncancellable(Serial):
    """`cancel` of a future returns True, although the item was run."""

    def submit(self, work: Work, item: Any) -> Future[Any]:
        done = super().submit(work, item)
        done.cancel = lambda: True  # type: ignore[method-assign]
        return done


class Mixing(Serial):
    """Swaps the answers of collectors."""

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulHere:
        made = StatefulHere(makers)
        ask = made.ask
        made.ask = lambda requests: dict(zip(requests, reversed(ask(requests).values()), strict=True))  # type: ignore[method-assign]
        return made


class OtherSeeds(Serial):
    """Changes the seed of runs."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        def changed(item: Any) -> Any:
            if not isinstance(item, RunRequest):
                return item
            return attrs.evolve(item, settings={**item.settings, "seed": 9})

        return super().map(work, [changed(item) for item in items])


class Swapping(Serial):
    """Reverses the order of answers for a group of items."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        found = super().map(work, items)
        return [answer[::-1] if isinstance(answer, list) else answer for answer in found]
