"""Processes that answer requests, and `spread`, which distributes requests among them.

If a process dies or hangs, it is replaced and its request is tried once more, or an error is raised.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import attrs

from rlsdk.errors import UsageError, WorkError, message_of, raised
from rlsdk.runtime import limited_threads

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ErrorT = TypeVar("ErrorT", bound=Exception)


OVERSLEPT = 1.0
"""Seconds after a deadline from which on this process counts as having been stopped, for example by Ctrl-Z."""
SHORT = 2.0
"""Seconds that a process has to end which was interrupted in its work."""
LOOK = 0.2
"""Seconds between two looks of a process whether its parent lives."""
GRACE = 5.0
"""Seconds that a process has to clean up after SIGTERM, before it is killed."""
TERMINAL = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
"""The signals that a terminal sends to all its processes."""
WORK = "the work"
"""The first words of errors about a function in a process. Those who know what it works for put its name there."""
Serve = Callable[[Connection, Any], None]
"""The function that runs in a process: it answers requests from the pipe until an `End` comes or the pipe closes."""


@attrs.frozen
class End:
    """The request that ends a process. Closing the pipe is not enough: processes that are forked later have copies of it."""


class WorkerDied(Exception):  # noqa: N818  # named after the event
    """A process ended or did not answer in time; the message states which of the two."""


class Worker:
    """One process and its pipe. The process runs `serve(pipe, argument)`; `label` is its name in messages."""

    owed: bool
    """Whether the answer to a request has not been received, as after Ctrl-C."""

    def __init__(self, context: Any, serve: Serve, argument: Any, label: str, *, daemon: bool = True) -> None:
        self.context, self.serve, self.argument, self.label, self.daemon = context, serve, argument, label, daemon
        self.failures = 0
        self.start()

    def start(self) -> None:
        """Start the process, or a new one in place of one that was killed.

        Raises:
            UsageError: this process is a daemon, which may not start processes.
        """
        if not may_start_processes():
            raise UsageError(
                f"{self.label}: this process is a daemon, such as a worker of multiprocessing.Pool, and may start none; use"
                " vectorization='sync' here, or concurrent.futures.ProcessPoolExecutor instead of the pool"
            )
        self.pipe: Connection
        self.pipe, theirs = self.context.Pipe()
        self._script = Script.unguarded()
        arguments = self._script, self.serve, theirs, self.argument  # in the order in which they are unpickled
        self.process = self.context.Process(target=_serve, args=arguments, daemon=self.daemon)
        with _terminal_signals_held(), hidden(self._script):
            self.process.start()
        theirs.close()
        self.owed = False

    def send(self, request: object) -> None:
        """Send a request. If the process is dead, this raises nothing; `receive` raises `WorkerDied` then.

        Raises:
            WorkError: the request cannot be pickled; the cause is the exception from pickling. Nothing was sent.
        """
        self.owed = True  # before sending: after Ctrl-C during `send`, an answer may come
        try:
            self.pipe.send(request)
        except (BrokenPipeError, ConnectionError):
            return
        except OSError:
            raise
        except Exception as error:  # pickling may raise any error
            self.owed = False
            raise unsendable("the work or an item", error) from error

    def receive(self, deadline: float, extension: float = 0.0) -> Any:
        """Wait for the answer to the last request and return it.

        Args:
            deadline: the value of `time.monotonic()` until which this waits.
            extension: seconds of additional time if this process itself was stopped while it waited, as by Ctrl-Z.

        Raises:
            WorkerDied: the process died or did not answer in time.
            UsageError: the process needs the main script, which it cannot import.
        """
        signals = [self.pipe, self.process.sentinel]
        while not (ready := wait(signals, _left(deadline))):
            if not extension or not _overslept(deadline):
                self.process.kill()  # else its answer would be taken for that to a later request
                self.owed = False
                raise WorkerDied("did not answer in time; it hangs")
            deadline = time.monotonic() + extension
        with contextlib.suppress(EOFError, OSError):
            # of a process that answered and then died, both are ready; asking the pipe again would take as long as the wait
            if self.pipe in ready:
                answer = self.pipe.recv()
                self.owed = False
                return answer
        self.owed = False
        self.process.join(1.0)
        if self._script is not None and self.process.exitcode == NEEDS_MAIN:
            raise UsageError(f"{self.label}: its process {self._script.why()}")
        raise WorkerDied(f"died (exit code {self.process.exitcode})")

    def kill(self) -> None:
        """End the process immediately."""
        self.process.kill()
        self.process.join(1.0)
        self.pipe.close()


def reply(pipe: Connection, answer: object) -> None:
    """Send an answer from such a process; in place of one that cannot be pickled, send the error."""
    try:
        pipe.send(answer)
    except (OSError, EOFError):  # the other side is gone
        raise
    except Exception as error:
        text = f"{WORK} gave a value that cannot be sent from its process: it {raised(error, 'pickling')}; ask for something"
        pipe.send(Raised.of(WorkError(f"{text} simpler, or work in one process (vectorization='sync')")))


def end_all(workers: Sequence[Worker], seconds: float, *, owed: bool) -> None:
    """Wait for processes that were asked to end, and kill those that still close what they hold after `seconds`.

    `owed`: they were interrupted in their work. Then they have `SHORT` seconds, and there is no warning.
    """
    seconds = SHORT if owed else max(seconds, SHORT)
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(_left(deadline))
        if worker.process.is_alive() and not owed:
            warnings.warn(
                f"the process of {worker.label} was killed, as it did not close within {seconds:g} s: files that it wrote"
                " may be incomplete",
                RuntimeWarning,
                stacklevel=3,
            )
        worker.kill()


def may_start_processes() -> bool:
    """Whether multiprocessing lets this process start others: daemons may not."""
    return not multiprocessing.current_process().daemon


def _serve(script: Script | None, serve: Serve, pipe: Connection, argument: Any) -> None:
    """Run `serve` in a started process, with one thread unless the work changes that.

    `script` is an argument because unpickling it replaces `__main__` (see `Script`). One thread is faster: a second thread of
    numpy's OpenBLAS waits in a busy loop for 20 ms after each piece of work.
    """
    with limited_threads(1):
        serve(pipe, argument)


class RepeatedFailure(WorkError):  # noqa: N818  # named after the event
    """The same item ended its process twice."""


def spread(
    workers: Sequence[Worker],
    requests: Sequence[object],
    timeout: float,
    *,
    accept: Callable[[Any], object],
    replaced: Callable[[], None],
) -> list[Any]:
    """Send each request to the next process that is free, and return the answers in the order of the requests.

    After an error, such as KeyboardInterrupt, some workers may owe an answer.

    Args:
        workers: the processes.
        requests: the requests.
        timeout: seconds after which a process that does not answer counts as hung.
        accept: a function that gets each answer when it arrives. If it raises an exception, `spread` raises it.
        replaced: called before a process is replaced, because it died or hung. Its request is tried once more, unless this
            raises an exception.

    Raises:
        RepeatedFailure: a request ended its process for the second time.
    """
    answers: dict[int, object] = {}
    waiting, tried = list(range(len(requests)))[::-1], set[int]()
    busy: dict[Worker, tuple[int, float]] = {}
    while len(answers) < len(requests):
        for worker in workers:
            if waiting and worker not in busy:
                index = waiting.pop()
                worker.send(requests[index])
                busy[worker] = index, time.monotonic() + timeout
        for worker in _ready(busy, timeout):
            index, _ = busy.pop(worker)
            try:
                answers[index] = answer = worker.receive(time.monotonic())
                accept(answer)
            except WorkerDied as reason:
                if index in tried:
                    raise RepeatedFailure(
                        f"item {index} ended its process twice; the process of {worker.label} {reason}"
                    ) from None
                tried.add(index)
                replaced()
                worker.kill()
                worker.start()
                waiting.append(index)
    return [answers[i] for i in range(len(requests))]


def _ready(busy: dict[Worker, tuple[int, float]], timeout: float) -> list[Worker]:
    """Wait, and return the busy processes that have answered, died or passed their deadline."""
    signals = [signal for worker in busy for signal in (worker.pipe, worker.process.sentinel)]
    first = min(deadline for _, deadline in busy.values())
    ready, late = set(wait(signals, _left(first))), time.monotonic()
    if _overslept(first):
        busy.update({worker: (index, late + timeout) for worker, (index, _) in busy.items()})
    return [
        worker
        for worker, (_, deadline) in busy.items()
        if worker.pipe in ready or worker.process.sentinel in ready or deadline <= late
    ]


def _overslept(deadline: float) -> bool:
    """Return whether the time is long after the deadline: then this process and its workers were stopped (Ctrl-Z)."""
    return time.monotonic() - deadline > OVERSLEPT


def _left(deadline: float) -> float | None:
    """Return the seconds until the deadline, at least 0; None if the deadline is infinite."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


@contextlib.contextmanager
def _terminal_signals_held() -> Iterator[None]:
    """Block the signals of the terminal for processes that are started inside, so that none interrupts their imports.

    A started process inherits the blocked signals. They wait until `forget_terminal_signals`.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget_terminal_signals() -> None:
    """Discard the terminal's signals that were blocked during the start, and unblock later ones.

    A child process calls it after `os.setsid`.
    """
    for number in TERMINAL:
        handler = signal.signal(number, signal.SIG_IGN)
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL)


def obey_parent_only() -> None:
    """Ignore the terminal's Ctrl-C and hang-up in this child process; the parent ends it by SIGTERM.

    SIGTERM raises KeyboardInterrupt, so that the child can clean up, for at most `GRACE` seconds.
    """
    for number in TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    forget_terminal_signals()
    signal.signal(signal.SIGTERM, _interrupted)


def clean_up_undisturbed() -> None:
    """Let later SIGTERMs not interrupt the clean-up of this child process; they only limit it to `GRACE` seconds."""
    signal.signal(signal.SIGTERM, _limited)


def _limited(number: int, frame: object) -> None:
    threading.Thread(target=_kill_late, daemon=True).start()


def _interrupted(number: int, frame: object) -> None:
    clean_up_undisturbed()
    _limited(number, frame)
    # Python only prints an exception that is raised in a destructor or in a callback of a weak reference, and continues;
    # the interrupt is raised once more in that case
    reported = sys.unraisablehook

    def dropped(problem: sys.UnraisableHookArgs) -> None:
        if issubclass(problem.exc_type, KeyboardInterrupt):
            signal.signal(signal.SIGTERM, _interrupted)
            # later and from a thread, because an interrupt inside this function would be lost as well
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            reported(problem)

    sys.unraisablehook = dropped
    raise KeyboardInterrupt


def end_with_parent() -> None:
    """Let this child process end when its parent dies: it gets SIGTERM then, and SIGKILL `GRACE` seconds later.

    The pipe to the parent does not show that the parent died, because processes forked later hold copies of its ends.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    born_of = os.getppid()  # the id of the parent, or of the fork server, which ends with the parent
    # the sentinel alone is not enough, as later forks of the parent hold copies of it; on Windows the other id stays
    while not wait([parent.sentinel], LOOK) and os.getppid() == born_of:
        pass
    time.sleep(0.2)  # a process that waits for its pipe may see in this time that the pipe closed
    os.kill(os.getpid(), signal.SIGTERM)
    _kill_late()


def _kill_late() -> None:
    time.sleep(GRACE)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


# Starting processes from a script that has no line `if __name__ == "__main__":`.
#
# `multiprocessing` imports the main script in every process that it spawns, because objects sent there may be defined
# in it. Importing a script without that line would start its training again. So the functions here prevent the import.
# A process that needs an object of such a script ends with the exit code `NEEDS_MAIN`.

MAIN, IN_CHILDREN = "__main__", "__mp_main__"
"""Names of the module of the main script: in this process, and in processes that `multiprocessing` starts."""
NEEDS_MAIN = 117
"""Exit code of a process that needs an object of a main script that is not imported."""
_GUARD = re.compile(r"^if\b.*\b__name__\b", re.MULTILINE)
_exchanging = threading.Lock()


@attrs.frozen
class Script:
    """A main script that other processes do not import.

    Unpickling a `Script` in a started process replaces `__main__` there by a module without the script's objects.
    """

    path: str

    @staticmethod
    def unguarded() -> Script | None:
        """Return the main script of this process if it has no `if __name__ ...` line.

        None if it has that line, if its file cannot be read, or if there is no script, as in notebooks.
        """
        path: str | None = getattr(sys.modules[MAIN], "__file__", None)
        if path is None:
            return None
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return None if _GUARD.search(text) else Script(os.path.abspath(path))

    def __reduce__(self) -> tuple[Callable[[str], Script], tuple[str]]:
        return _missing, (self.path,)

    def why(self) -> str:
        """Return why a process ended with `NEEDS_MAIN` and how to mend it, as text that continues "its process"."""
        guard = "put the code that trains under `if __name__ == '__main__':`"
        return f"needs a class or function of {self.path}, which it must not import, as that would train there too; {guard}"


class _Hidden(ModuleType):
    """The main module with no `__file__` and an empty `__spec__`: `multiprocessing` imports what these two name."""

    def __init__(self, main: ModuleType) -> None:
        super().__init__(MAIN)
        self._main = main

    def __getattr__(self, name: str) -> object:
        if name == "__file__":
            raise AttributeError(name)
        return getattr(self._main, name)


class _Missing(ModuleType):
    """A main module without objects: the first access to one ends the process with the exit code `NEEDS_MAIN`."""

    def __init__(self, path: str) -> None:
        super().__init__(MAIN)
        self.__file__ = path

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        os._exit(NEEDS_MAIN)


@contextlib.contextmanager
def hidden(script: Script | None) -> Iterator[None]:
    """Return a context manager: processes that are started inside it do not import the main script `script`."""
    if script is None:
        yield
        return
    with _exchanging:
        main = sys.modules[MAIN]
        sys.modules[MAIN] = _Hidden(main)
        try:
            yield
        finally:
            sys.modules[MAIN] = main


def _missing(path: str) -> Script:
    """Unpickle a `Script`. In a started process, whose `__main__` has no file, replace `__main__` by `_Missing`."""
    if not hasattr(sys.modules[MAIN], "__file__"):
        sys.modules[MAIN] = sys.modules[IN_CHILDREN] = _Missing(path)
    return Script(path)


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
