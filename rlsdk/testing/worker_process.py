"""The parent's side of the process in which clauses are checked: questions, deadlines, memory."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

import attrs

from rlsdk.registry import child_process
from rlsdk.runtime.memory_budget import available_bytes, gigabytes

MEMORY = 4 * 10**9
"""Bytes for the process and those it starts, at most nine tenths of what is free."""
POLL, LOOK = 0.05, 0.25
"""Seconds between looks at whether the process lives, and at its memory."""
STACK = 1.0
"""Seconds that a process which hangs gets to write its stack."""
LEAST = 0.1
"""Seconds that an answer gets at least."""
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes of Python's own, which end with the process that they serve."""


@attrs.frozen
class Fault:
    """Why no answer came."""

    text: str
    """Continues a sentence about the process."""
    output: str
    """What the process wrote since the question."""
    hangs: bool = False


class WorkerProcess:
    """One process with `child` of `rlsdk.testing.worker`.

    Memory is read in `/proc`, from here: a limit of the address space (`RLIMIT_AS`) would also count what is
    reserved and never used, as CUDA and threads do, and would not count the plugin's own processes. Where there is no `/proc`,
    neither memory nor processes that are left are looked at.
    """

    def __init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._memory = min(MEMORY, int(0.9 * (available_bytes() or MEMORY)))
        pipe = subprocess.PIPE
        self._process = child_process.start("rlsdk.testing.worker", [], stdin=pipe, stdout=pipe, stderr=self._output)
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, question: bytes, seconds: float) -> dict[str, Any] | Fault:
        """The answer to one line; a fault where the process ends, takes too much memory or does not answer in time."""
        begin = self._output.seek(0, 2)
        fault = self._send(question) or self._wait(time.monotonic() + max(seconds, LEAST), seconds)
        if isinstance(fault, dict):
            return fault
        if fault.hangs:
            self._ask_stack()
        self._output.seek(begin)
        return attrs.evolve(fault, output=self._output.read(1_000_000).decode("utf-8", "replace"))

    @property
    def command(self) -> str:
        """Its command line, which is also that of a process that it forks."""
        return next((m.command for m in child_process.members(self._process.pid) if m.pid == self._process.pid), "")

    def left(self, grace: float) -> list[child_process.Member]:
        """The processes that still run `grace` seconds later besides the child itself; they are ended."""
        end = time.monotonic() + grace
        while (found := self._others()) and time.monotonic() < end:
            time.sleep(POLL)
        for member in found:
            child_process.end_member(member)
        return found

    def strays(self) -> int:
        """How many forked processes came back from the plugin's code since this was asked."""
        count = 0
        with contextlib.suppress(queue.Empty):
            while (answer := self._answers.get_nowait()) is not None:
                count += "stray" in answer
        return count

    def close(self) -> None:
        """End the process, and all that it started."""
        child_process.end(self._process)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._output.close()

    def _read(self) -> None:
        """Body of a thread: answers into the queue; None at the end."""
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
        """The next answer that is not a stray's."""
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

    def _ask_stack(self) -> None:
        """Have the process write its stack, which shows where it hangs."""
        if child_process.ASK_STACK is not None and self._process.poll() is None:
            before, end = self._written(), time.monotonic() + STACK
            self._process.send_signal(child_process.ASK_STACK)
            while self._written() == before and time.monotonic() < end:
                time.sleep(POLL)

    def _written(self) -> int:
        return os.fstat(self._output.fileno()).st_size

    def _too_much(self) -> Fault | None:
        """Why the process must end, where it and those it started take too much memory."""
        running = child_process.members(self._process.pid)
        if sum(child_process.private_bytes(each.pid) for each in running) <= self._memory:
            return None
        count = f", in {len(running)} processes" if len(running) > 1 else ""
        return Fault(f"used more than {gigabytes(self._memory)} of memory{count}", "")

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
