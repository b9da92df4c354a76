"""Processes that answer requests, and the distribution of work among them, of any kind.

A process that dies or hangs is replaced and its work tried once more, or an error is raised. Nothing waits forever.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import attrs

from rlsdk.errors import RlsdkError, UsageError, raised
from rlsdk.executors.main_module import NEEDS_MAIN, Script, hidden
from rlsdk.runtime.threads import limited_threads

OVERSLEPT = 1.0
"""Seconds."""
GRACE = 5.0
"""Seconds a process has to end by itself once its parent is gone."""
TERMINAL = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
"""What a terminal sends to all its processes."""
Serve = Callable[[Connection, Any], None]
"""What runs in a process: answers (name, arguments) from the pipe until it closes."""


class WorkerDied(Exception):  # noqa: N818  # named after the event
    """A process ended, or did not answer in time; the message states which."""


@attrs.frozen
class Failure:
    """Sent instead of an answer: the error's kind (a class of rlsdk.errors), its message, and where it came from."""

    kind: type[RlsdkError] | None
    message: str
    trace: str

    @staticmethod
    def of(error: Exception) -> Failure:
        """The text of an error."""
        kind = type(error) if isinstance(error, RlsdkError) else None
        message = str(error) if kind else raised(error)
        return Failure(kind, message, "".join(traceback.format_exception(error)).rstrip())


class Worker:
    """One process and its pipe. `argument` is what `serve` was started with, `label` how messages call it."""

    def __init__(self, context: Any, serve: Serve, argument: Any, label: str, *, daemon: bool = True) -> None:
        self.context, self.serve, self.argument, self.label, self.daemon = context, serve, argument, label, daemon
        self.failures = 0
        self.start()

    def start(self) -> None:
        """Start the process, or another one in its place; raises UsageError where this process may start none."""
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

    def send(self, request: str, *arguments: object) -> None:
        """Send a request; a death is noticed when the answer is missing."""
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self.pipe.send((request, arguments))

    def receive(self, deadline: float, extension: float = 0.0) -> Any:
        """The answer to the last request; `extension` are the seconds given where this process was stopped meanwhile.

        Raises:
            WorkerDied: there will be none. UsageError: the process needs the main script, which it cannot import.
        """
        signals = [self.pipe, self.process.sentinel]
        while not wait(signals, _left(deadline)):
            if not extension or not _overslept(deadline):
                raise WorkerDied("did not answer in time; it hangs")
            deadline = time.monotonic() + extension
        with contextlib.suppress(EOFError, OSError):
            if self.pipe.poll():
                return self.pipe.recv()
        self.process.join(1.0)
        if self._script is not None and self.process.exitcode == NEEDS_MAIN:
            raise UsageError(f"{self.label}: its process {self._script.why()}")
        raise WorkerDied(f"died (exit code {self.process.exitcode})")

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join(1.0)
        self.pipe.close()


def may_start_processes() -> bool:
    """Whether multiprocessing lets this process start others: daemons may not."""
    return not multiprocessing.current_process().daemon


def _serve(script: Script | None, serve: Serve, pipe: Connection, argument: Any) -> None:
    """Body of a process, which has one thread unless its work asks for more. `script` acts when it is unpickled.

    A second thread of numpy's OpenBLAS waits in a loop for 20 ms whenever it had something to do.
    """
    with limited_threads(1):
        serve(pipe, argument)


class RepeatedFailure(Exception):  # noqa: N818  # named after the event
    """The same item ended two processes."""


def spread(
    workers: Sequence[Worker],
    requests: Sequence[tuple[str, *tuple[object, ...]]],
    *,
    timeout: float,
    accept: Callable[[object], None],
    replaced: Callable[[], None],
) -> list[Any]:
    """One answer for each request (name, arguments...), each given to the next process that is free; in order.

    Args:
        workers: the processes.
        requests: what to send.
        timeout: seconds after which a process that does not answer counts as hung.
        accept: gets each answer as it comes; an exception of it ends everything.
        replaced: called whenever a process had to be replaced; its request is tried once more.

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
                worker.send(*requests[index])
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
                worker.kill()
                worker.start()
                waiting.append(index)
                replaced()
    return [answers[i] for i in range(len(requests))]


def _ready(busy: dict[Worker, tuple[int, float]], timeout: float) -> list[Worker]:
    """The busy processes that have answered, died, or run out of time."""
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
    """Whether this process comes to see to a deadline long after it: it was stopped itself (Ctrl-Z), and they with it."""
    return time.monotonic() - deadline > OVERSLEPT


def _left(deadline: float) -> float | None:
    """Seconds until then; None for never."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


@contextlib.contextmanager
def _terminal_signals_held() -> Iterator[None]:
    """A process started inside inherits that the terminal's signals wait, so none interrupts its imports."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget_terminal_signals() -> None:
    """Called in a child process once it is in a session of its own: those that waited are gone, later ones count."""
    for number in TERMINAL:
        handler = signal.signal(number, signal.SIG_IGN)
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL)


def obey_parent_only() -> None:
    """Called in a child process: the terminal's Ctrl-C and hang-up are for the parent, which ends this process by SIGTERM.

    SIGTERM becomes KeyboardInterrupt, so that the child can clean up, for at most `GRACE` seconds.
    """
    for number in TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    forget_terminal_signals()
    signal.signal(signal.SIGTERM, _interrupted)


def clean_up_undisturbed() -> None:
    """Called in such a child before it cleans up: SIGTERM does not interrupt that, it only limits how long it takes."""
    signal.signal(signal.SIGTERM, _limited)


def _limited(number: int, frame: object) -> None:
    threading.Thread(target=_kill_late, daemon=True).start()


def _interrupted(number: int, frame: object) -> None:
    clean_up_undisturbed()
    _limited(number, frame)
    raise KeyboardInterrupt


def end_with_parent() -> None:
    """Called in a child process: when its parent dies, it gets SIGTERM, and SIGKILL `GRACE` seconds later.

    The pipe to the parent does not reveal that the parent died: processes forked later hold copies of its ends.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: object) -> None:
    _wait_for_end(parent)
    time.sleep(0.2)  # one that waits at its pipe may see the end there
    os.kill(os.getpid(), signal.SIGTERM)
    _kill_late()


def _kill_late() -> None:
    time.sleep(GRACE)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _wait_for_end(parent: Any) -> None:
    """Return once the process has ended, reaped or not."""
    try:
        handle = os.pidfd_open(parent.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, an old kernel, or a sandbox
        born_of = os.getppid()  # the parent, or the fork server, which ends with it
        while not wait([parent.sentinel], 1.0) and os.getppid() == born_of:
            pass
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll()
    finally:
        os.close(handle)
