"""`WorkerProcess` starts the process in which clauses are checked, sends questions to it, and limits its time and memory."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs

from rlsdk_testing.child_process import ChildProcess, RunningProcess

POLL, LOOK = 0.05, 0.25
"""Seconds between checks whether the process is alive, and between checks of its memory."""
LEAST = 0.1
"""The smallest time limit of an answer, in seconds."""
IDLE, BUSY = 5.0, 0.02
"""A process waits if it took less than this share of a processor for so many seconds. Under any load one that computes gets
more; one that waits takes a little for the thread that watches its parent."""
SLOWEST = 10.0
"""The largest ratio of the time by the clock to the processor time of an answer."""
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helper processes of Python, which end together with the process that they belong to."""


@attrs.frozen
class Fault:
    """Why there was no answer."""

    text: str
    """The reason, as text that continues a sentence about the process."""
    place: str = ""
    """Where the plugin's code was, as " in FUNCTION (FILE, line N)"; else ": " and the last line of the error output."""
    hangs: bool = False
    late: bool = False
    """Whether the time of the whole check was over."""


class Limit:
    """The time limit of one answer.

    A process that computes has `seconds` of processor time, together with the processes that it starts, so that other programs
    on the machine do not matter. One that waits has `seconds` of the clock, and no process has more than `SLOWEST` times that.
    Without `/proc`, processor time is not known, and every process has `seconds` of the clock.
    """

    def __init__(self, seconds: float, within: float, spent: Callable[[], float]) -> None:
        """`within`: what is left of the whole check, by the clock. `spent()`: the processor time until now."""
        self._seconds, self._within, self._spent = seconds, within, spent
        self._begin = self._active = time.monotonic()
        self._before = self._seen = spent()

    def over(self) -> Fault | None:
        """Return a fault if the time is over; None before."""
        now, spent = time.monotonic(), self._spent()
        # it also falls, where a process ends without a parent that waits for it
        if abs(spent - self._seen) > BUSY * IDLE:
            self._active, self._seen = now, spent
        waits, passed = now - self._active > min(IDLE, self._seconds), now - self._begin
        if passed > max(self._within, LEAST):
            return Fault(f"did not end within {self._within:.3g} s", hangs=True, late=True)
        if spent - self._before > self._seconds:
            return Fault(f"did not end within {self._seconds:.3g} s of processor time", hangs=True)
        longest = self._seconds * (1.0 if waits else SLOWEST)
        return Fault(f"did not end within {longest:.3g} s", hangs=True) if passed > longest else None


class WorkerProcess:
    """A process that runs `child` of `rlsdk_testing.worker`.

    Without `/proc`, neither memory nor remaining processes are checked.
    """

    def __init__(self, package: str) -> None:
        """Start it. `package`: the import name of the plugin's package, for the places in faults."""
        self._package = package
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        pipe = subprocess.PIPE
        self._child = ChildProcess("rlsdk_testing.worker", stdin=pipe, stdout=pipe)
        self._process = self._child.popen
        self._running: tuple[RunningProcess, ...] = ()
        """The process and those it started, when they were looked at last."""
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, question: bytes, seconds: float, within: float = math.inf) -> dict[str, Any] | Fault:
        """Send one line and return the answer.

        Return a fault if the process ends, uses too much memory or does not answer in time. `seconds`, `within`: see `Limit`.
        """
        begin = os.fstat(self._child.errors.fileno()).st_size
        self._running = self._child.running()
        limit = Limit(seconds, within, self._processor_seconds)
        fault = self._send(question) or self._wait(limit)
        if isinstance(fault, dict):
            return fault
        if fault.hangs:
            self._child.ask_stack()
        return attrs.evolve(fault, place=self._child.place_in(self._package, begin))

    @property
    def command(self) -> str:
        """The command line of the process. Processes that it forks have the same."""
        return next((m.command for m in self._child.running() if m.pid == self._process.pid), "")

    def left(self, grace: float) -> list[RunningProcess]:
        """Wait up to `grace` seconds for processes that the child started; end and return those that still run then."""
        end = time.monotonic() + grace
        while (found := self._others()) and time.monotonic() < end:
            time.sleep(POLL)
        for process in found:
            process.end()
        return found

    def strays(self) -> int:
        """Return how many forked processes have returned from the plugin's code since the last call."""
        count = 0
        with contextlib.suppress(queue.Empty):
            while (answer := self._answers.get_nowait()) is not None:
                count += "stray" in answer
        return count

    def close(self) -> None:
        """End the process and all processes that it started."""
        self._child.end()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        """Put the answers of the process into the queue, and None at the end. This runs in a thread."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout as lines:
            for line in lines:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _send(self, question: bytes) -> Fault | None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question)
            self._process.stdin.flush()
        except OSError:
            return self._ended()
        return None

    def _wait(self, limit: Limit) -> dict[str, Any] | Fault:
        """Wait for the next answer of the process itself; answers of forked processes ("strays") are only counted."""
        look, strays = time.monotonic() + LOOK, 0
        while True:
            try:
                answer = self._answers.get(timeout=POLL)
            except queue.Empty:
                if self._process.poll() is not None:
                    return self._ended()
            else:
                if answer is None:
                    return self._ended()
                strays += "stray" in answer
                if "stray" not in answer:
                    return {**answer, "strays": strays}
            now = time.monotonic()
            if now > look:
                look, self._running = now + LOOK, self._child.running()
                if (fault := limit.over() or self._too_much()) is not None:
                    return fault

    def _too_much(self) -> Fault | None:
        """Return a fault if the process and those it started use too much memory; else None."""
        excess = self._child.too_much_memory(self._running)
        return None if excess is None else Fault(excess)

    def _processor_seconds(self) -> float:
        """Return the processor time of the process and those it started, also of those that have ended; 0 without `/proc`."""
        return sum(member.seconds for member in self._running)

    def _ended(self) -> Fault:
        try:
            ended = self._child.how_it_ended()
        except subprocess.TimeoutExpired:
            return Fault("closed the process's connections")
        hint = " (the system may have run out of memory)" if self._process.returncode == -9 else ""
        return Fault(ended + hint)

    def _others(self) -> list[RunningProcess]:
        return [
            m for m in self._child.running() if m.pid != self._process.pid and not any(h in m.command for h in HELPERS)
        ]
