"""Calling a function in another process: its result or its exception is sent back."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

import attrs

from rlsdk.errors import WorkError, message_of, raised

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ErrorT = TypeVar("ErrorT", bound=Exception)
PLAIN = (str, bytes, int, float, bool, type(None))
CREATED_ELSEWHERE = "--- in its process ---"


def traced(error: ErrorT, trace: str) -> ErrorT:
    """Return `error` with a note that holds `trace`, the traceback from the process where it was raised.

    Python prints the note. The message of the error is unchanged.
    """
    if trace:
        error.add_note(f"{CREATED_ELSEWHERE}\n{trace}")
    return error


@attrs.frozen
class Raised:
    """An exception as text and plain values. Every process can unpickle these; the exception itself perhaps not."""

    module: str
    name: str
    arguments: tuple[object, ...]
    message: str
    trace: str
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(error: Exception) -> Raised:
        """Return the class, arguments, message, traceback and notes of `error`, to raise it in another process."""
        kind, trace = type(error), "".join(traceback.format_exception(error)).rstrip()
        arguments, notes = _arguments(error), tuple(map(str, getattr(error, "__notes__", ())))
        return Raised(kind.__module__, kind.__qualname__, arguments, message_of(error), trace, notes)

    def error(self) -> Exception:
        """Return the exception. If its class cannot be imported or created here, return a `WorkError` that names it."""
        made = self._made()
        if made is None:
            made = WorkError(f"the work raised {self.name}: {self.message}")
        for note in self.notes:
            made.add_note(note)
        return traced(made, self.trace)

    def _made(self) -> Exception | None:
        try:
            kind: object = import_module(self.module)
            for part in self.name.split("."):
                kind = getattr(kind, part)
            made = kind(*self.arguments) if isinstance(kind, type) and issubclass(kind, Exception) else None
            return made if made is not None and str(made) == self.message else None
        except Exception:  # a class of a third party: its module and its constructor may raise anything
            return None


def _arguments(error: Exception) -> tuple[object, ...]:
    """Return the arguments that create an equal error, if they are plain values; else only the message."""
    try:
        reduced: Any = error.__reduce__()
        kind, arguments = reduced[:2]
    except Exception:
        return (message_of(error),)
    if kind is type(error) and isinstance(arguments, tuple) and all(isinstance(a, PLAIN) for a in arguments):
        return arguments
    return (message_of(error),)


def attempt(work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT | Raised:
    """Return `work(item)`, or a `Raised` if it raised an exception."""
    try:
        return work(item)
    except Exception as error:
        return Raised.of(error)


def result_of(answer: ResultT | Raised) -> ResultT:
    """Return `answer`, the result of `attempt`; raise the exception if it is a `Raised`."""
    if isinstance(answer, Raised):
        raise answer.error()
    return answer


def unsendable(what: str, error: BaseException) -> WorkError:
    """Return the error to raise when `what` cannot be pickled; `error` is the exception from pickling."""
    return WorkError(
        f"{what} cannot be sent to another process: it {raised(error, 'pickling')}; give a function that a module holds,"
        " and items of plain values, arrays and records"
    )


class Maps(Protocol):
    """An executor with a method `map`, which `Submitting` needs."""

    def map(self, work: Callable[[ItemT], ResultT], items: list[ItemT], /) -> list[ResultT]: ...


class Submitting(Generic[ItemT]):
    """Adds `submit` to an executor whose `map` may be called from several threads.

    There are as many threads as workers. Each thread calls `map` with one item.
    """

    def __init__(self, executor: Maps, workers: int) -> None:
        self.executor, self.workers = executor, workers
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` in one of the threads, and return the future of its result."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="rlsdk-submitted")
        return self._threads.submit(lambda: self.executor.map(work, [item])[0])

    def close(self) -> None:
        """Cancel the work that has not begun; running work is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
