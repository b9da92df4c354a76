"""One piece of work in another process: what it returned, or what it raised."""

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
    """`error`, which Python prints with the traceback of the process that it comes from; its message stays one line."""
    if trace:
        error.add_note(f"{CREATED_ELSEWHERE}\n{trace}")
    return error


@attrs.frozen
class Raised:
    """An exception as text and plain values, which every process can read: its own pickle might not be readable."""

    module: str
    name: str
    arguments: tuple[object, ...]
    message: str
    trace: str
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(error: Exception) -> Raised:
        """What is needed to raise such an error elsewhere."""
        kind, trace = type(error), "".join(traceback.format_exception(error)).rstrip()
        arguments, notes = _arguments(error), tuple(map(str, getattr(error, "__notes__", ())))
        return Raised(kind.__module__, kind.__qualname__, arguments, message_of(error), trace, notes)

    def error(self) -> Exception:
        """The exception, of its own class where that can be imported and made here, else a `WorkError` that names it."""
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
        except Exception:  # another program's class: its module and its constructor may do anything
            return None


def _arguments(error: Exception) -> tuple[object, ...]:
    """What the error's class is called with to make an equal one, where that is plain; else its message."""
    try:
        reduced: Any = error.__reduce__()
        kind, arguments = reduced[:2]
    except Exception:
        return (message_of(error),)
    if kind is type(error) and isinstance(arguments, tuple) and all(isinstance(a, PLAIN) for a in arguments):
        return arguments
    return (message_of(error),)


def attempt(work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT | Raised:
    """`work(item)`, or what it raised."""
    try:
        return work(item)
    except Exception as error:
        return Raised.of(error)


def result_of(answer: ResultT | Raised) -> ResultT:
    """The answer, unless it is an exception: that is raised."""
    if isinstance(answer, Raised):
        raise answer.error()
    return answer


def unsendable(what: str, error: BaseException) -> WorkError:
    """The error for work that cannot be pickled."""
    return WorkError(
        f"{what} cannot be sent to another process: it {raised(error, 'pickling')}; give a function that a module holds,"
        " and items of plain values, arrays and records"
    )


class Maps(Protocol):
    """What `Submitting` needs."""

    def map(self, work: Callable[[ItemT], ResultT], items: list[ItemT], /) -> list[ResultT]: ...


class Submitting(Generic[ItemT]):
    """Futures made of a `map` that may be called from several threads: a thread for each worker maps one item."""

    def __init__(self, executor: Maps, workers: int) -> None:
        self.executor, self.workers = executor, workers
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """`work(item)` as a future."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="rlsdk-submitted")
        return self._threads.submit(lambda: self.executor.map(work, [item])[0])

    def close(self) -> None:
        """What was not begun is not begun any more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
