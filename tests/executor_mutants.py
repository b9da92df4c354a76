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
from rlsdk.executors.stateful import StatefulHere

Work = Callable[[Any], Any]


class Serial(SerialExecutor):
    """What the mutants are made of."""

    def __init__(self, workers: int) -> None:
        pass


class Unordered(Serial):
    """Results in the order in which items ended."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        return super().map(work, items)[::-1]


class Wrapping(Serial):
    """Every exception is a WorkError."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        try:
            return super().map(work, items)
        except Exception as error:
            raise WorkError(str(error)) from None


class Finishing(Serial):
    """All items are done before the first exception is raised."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        futures = [self.submit(work, item) for item in items]
        return [future.result() for future in futures]


class Exhausted(Serial):
    """No work after an exception."""

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
    """A forked process for each item, which is tried `attempts` times."""

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
    """The death of a worker is the end."""


class Stubborn(Forked):
    """An item that ends its worker is tried thirty times."""

    attempts = 30


class Raw(Serial):
    """What cannot be pickled raises the error of the pickler."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        if "lambda" in getattr(work, "__qualname__", ""):
            raise AttributeError("Can't pickle local object")
        return super().map(work, items)


class Rounding(Serial):
    """Arrays travel with half of their digits."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        found = super().map(work, items)
        return [answer.astype(np.float32) if isinstance(answer, np.ndarray) else answer for answer in found]


class Locked(Serial):
    """Work must not map."""

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
    """The exception of a future is its result."""

    def submit(self, work: Work, item: Any) -> Future[Any]:
        future = super().submit(work, item)
        if (error := future.exception()) is not None:
            future = Future()
            future.set_result(error)
        return future


class Uncancellable(Serial):
    """A future states that it was cancelled, and its item was begun."""

    def submit(self, work: Work, item: Any) -> Future[Any]:
        done = super().submit(work, item)
        done.cancel = lambda: True  # type: ignore[method-assign]
        return done


class Mixing(Serial):
    """Collectors get each other's answers."""

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulHere:
        made = super().stateful_workers(makers)
        ask = made.ask
        made.ask = lambda requests: dict(zip(requests, reversed(ask(requests).values()), strict=True))  # type: ignore[method-assign]
        return made


class OtherSeeds(Serial):
    """Runs have another seed than asked for."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        def changed(item: Any) -> Any:
            settings = getattr(item, "settings", None)
            return attrs.evolve(item, settings={**settings, "seed": 9}) if settings else item

        return super().map(work, [changed(item) for item in items])


class Swapping(Serial):
    """Answers about a group of items come back in another order."""

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        found = super().map(work, items)
        return [answer[::-1] if isinstance(answer, list) else answer for answer in found]
