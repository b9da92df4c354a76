"""`WorkerProcess` starts the process in which clauses are checked, sends questions to it, and limits its time and memory."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

import attrs

from rlsdk.registry import child_process

POLL, LOOK = 0.05, 0.25
"""Seconds between checks whether the process is alive, and between checks of its memory."""
LEAST = 0.1
"""The smallest time limit of an answer, in seconds."""
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helper processes of Python, which end together with the process that they belong to."""


@attrs.frozen
class Fault:
    """Why there was no answer."""

    text: str
    """The reason, as text that continues a sentence about the process."""
    output: str
    """What the process has written to its error output since the question."""
    hangs: bool = False


class WorkerProcess:
    """A process that runs `child` of `rlsdk_testing.worker`.

    Without `/proc`, neither memory nor remaining processes are checked.
    """

    def __init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._memory = child_process.memory_limit()
        pipe = subprocess.PIPE
        self._process = child_process.start("rlsdk_testing.worker", [], stdin=pipe, stdout=pipe, stderr=self._output)
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, question: bytes, seconds: float) -> dict[str, Any] | Fault:
        """Send one line and return the answer.

        Return a fault if the process ends, uses too much memory or does not answer in time.
        """
        begin = self._output.seek(0, 2)
        fault = self._send(question) or self._wait(time.monotonic() + max(seconds, LEAST), seconds)
        if isinstance(fault, dict):
            return fault
        if fault.hangs:
            child_process.ask_stack(self._process, self._output)
        self._output.seek(begin)
        return attrs.evolve(fault, output=self._output.read(1_000_000).decode("utf-8", "replace"))

    @property
    def command(self) -> str:
        """The command line of the process. Processes that it forks have the same."""
        return next((m.command for m in child_process.members(self._process.pid) if m.pid == self._process.pid), "")

    def left(self, grace: float) -> list[child_process.Member]:
        """Wait up to `grace` seconds for processes that the child started; end and return those that still run then."""
        end = time.monotonic() + grace
        while (found := self._others()) and time.monotonic() < end:
            time.sleep(POLL)
        for member in found:
            child_process.end_member(member)
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
        child_process.end(self._process)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._output.close()

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

    def _wait(self, end: float, seconds: float) -> dict[str, Any] | Fault:
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
            if now > end:
                return Fault(f"did not end within {seconds:.3g} s", "", hangs=True)
            if now > look:
                look = now + LOOK
                if (fault := self._too_much()) is not None:
                    return fault

    def _too_much(self) -> Fault | None:
        """Return a fault if the process and those it started use too much memory; else None."""
        excess = child_process.too_much_memory(self._process.pid, self._memory)
        return None if excess is None else Fault(excess, "")

    def _ended(self) -> Fault:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return Fault("closed the process's connections", "")
        hint = " (the system may have run out of memory)" if code == -9 else ""
        return Fault(child_process.how_it_ended(code) + hint, "")

    def _others(self) -> list[child_process.Member]:
        everything = child_process.members(self._process.pid)
        return [m for m in everything if m.pid != self._process.pid and not any(h in m.command for h in HELPERS)]
