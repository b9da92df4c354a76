"""Python processes that this one starts, with the processes that those start in turn.

Each child process leads a new session, so that it can be ended together with all processes that it started.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

import attrs

from rlsdk.errors import one_line
from rlsdk.runtime import available_bytes

ASK_STACK = getattr(signal, "SIGUSR1", None)
"""The signal that asks a child to write its stack; None on Windows."""
POLL, STACK = 0.05, 1.0
"""Seconds between checks of a child, and seconds that a hanging child has to write its stack."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from rlsdk_testing.child_process import write_stacks; write_stacks(); from {module} import child; child()"
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)


class ChildProcess:
    """A new Python process that runs the function `child` of `module` with the `sys.path` of this one.

    The caller's `__main__` is not imported. So this works in notebooks, with `python -c` and in scripts without
    `if __name__ == "__main__":`. Its error output goes to a temporary file, with its stack if it crashes::

        process = ChildProcess("my_package.worker", ["fast"])
        try:
            process.popen.wait(20.0)
        finally:
            process.end()
    """

    MEMORY = 4 * 10**9
    """The memory limit, in bytes, of the process and those it starts; nine tenths of what is free if that is less."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
    ) -> None:
        """Start it. `arguments` are its `sys.argv[1:]`; the streams are those of `subprocess.Popen`."""
        # The child finds what this process would import, also in the folder of a notebook.
        path = json.dumps(list(map(str, sys.path)))
        # Below what is free: otherwise the system might end other processes first.
        self._memory = min(self.MEMORY, int(0.9 * (available_bytes() or self.MEMORY)))
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        """What it wrote to its error output."""
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START.format(module=module), path, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=self.errors,
            start_new_session=True,
        )

    def running(self) -> tuple[RunningProcess, ...]:
        """Return the processes of its session, also itself, and their descendants; none without `/proc`."""
        return _members(self.popen.pid)

    def end(self) -> None:
        """End it and all processes that it started."""
        # Descendants in a session of their own too, which the signal to the group does not reach.
        for process in self.running():
            process.end()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, signal.SIGKILL)
            else:
                self.popen.kill()
        self.popen.wait()
        self.errors.close()

    def how_it_ended(self) -> str:
        """Wait for its end, and return the meaning of its exit code, as text that begins with "ended the process".

        Raises:
            subprocess.TimeoutExpired: it still runs after 5 s.
        """
        code = self.popen.wait(5.0)
        if code >= 0:
            return f"ended the process with exit code {code}"
        name = signal.Signals(-code).name if -code in {int(kind) for kind in signal.Signals} else f"signal {-code}"
        return f"ended the process by {name}"

    def ask_stack(self) -> None:
        """Let it write its stack, which shows where it hangs; wait until it has."""
        if ASK_STACK is not None and self.popen.poll() is None:
            before, end = os.fstat(self.errors.fileno()).st_size, time.monotonic() + STACK
            self.popen.send_signal(ASK_STACK)
            while os.fstat(self.errors.fileno()).st_size == before and time.monotonic() < end:
                time.sleep(POLL)

    def place_in(self, package: str, begin: int = 0) -> str:
        """Return the function and line in which the code of `package` was when the process ended or hung.

        They are read from the stacks in its error output from byte `begin` on, innermost call first. Without a stack, return
        the last line.
        """
        self.errors.seek(begin)
        # A limit, because the plugin may have printed any amount.
        output = self.errors.read(1_000_000).decode("utf-8", "replace")
        for path, line, function in _FRAME.findall(output):
            _, folder, rest = path.replace("\\", "/").rpartition(f"/{package}/")
            if folder:
                return f" in {function} ({package}/{rest}, line {line})"
        lines = output.strip().splitlines()
        return f": {one_line(lines[-1], 200)}" if lines and not _FRAME.search(output) else ""

    def too_much_memory(self, running: Sequence[RunningProcess] | None = None) -> str | None:
        """Return text about the process if it uses too much memory, with the processes it started; else None.

        `running`: these processes, if the caller has them from `running()`.

        It reads `/proc`, and returns None without it. A limit of the address space (`RLIMIT_AS`) is not used: it would also
        count memory that is reserved and never used, as by CUDA and threads. It would not count processes that it starts.
        """
        running = self.running() if running is None else running
        if sum(each.private_bytes() for each in running) <= self._memory:
            return None
        count = f", in {len(running)} processes" if len(running) > 1 else ""
        return f"used more than {self._memory / 1e9:.1f} GB of memory{count}"


def write_stacks() -> None:
    """Let this child write its stack to its error output if it crashes, or if the parent sends the signal `ASK_STACK`.

    `faulthandler.dump_traceback_later` is not used: its thread reads the frames of running threads, and so can crash.
    Stacks are written to a separate file descriptor, because standard error may be captured or closed.
    """
    errors = os.dup(2)
    faulthandler.enable(errors)
    if ASK_STACK is not None:
        faulthandler.register(ASK_STACK, errors, all_threads=False)


def end_with_parent(parent: int, leave: Callable[[int], object], seconds: float = float("inf")) -> None:
    """Wait until the parent process has ended or the time limit of `seconds` was exceeded by one second, then call `leave(1)`.

    A child process runs this in a thread, so that it ends when its parent is killed.
    """
    limit = time.monotonic() + seconds
    # A second later than the parent, which first asks this process for its stack.
    while os.getppid() == parent and time.monotonic() < limit + 1.0:
        time.sleep(0.2)
    leave(1)


@attrs.frozen
class RunningProcess:
    """A running process, with its id and those of its parent and session."""

    pid: int
    parent: int
    session: int
    seconds: float
    """Its processor time, with that of the processes it started and waited for."""
    command: str = ""
    """The command line of the process."""

    def end(self) -> None:
        """End it by SIGKILL."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    def private_bytes(self) -> int:
        """Return the bytes of its memory that no file backs; 0 if it has ended or the system has no `/proc`."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="utf-8", errors="replace") as stream:
                lines = [line.split() for line in stream if line.startswith(("RssAnon:", "RssShmem:"))]
            return sum(int(words[1]) * 1024 for words in lines)
        except (OSError, ValueError, IndexError):
            return 0


def _members(leader: int) -> tuple[RunningProcess, ...]:
    """Return the processes of the session that `leader` leads, and their descendants; none without `/proc`."""
    everything = [found for name in _numbers() if (found := _look(int(name))) is not None]
    chosen = {each.pid: each for each in everything if each.session == leader or each.pid == leader}
    while more := {each.pid: each for each in everything if each.parent in chosen and each.pid not in chosen}:
        chosen |= more
    # only now: a machine may run hundreds of other processes, which are looked at several times a second
    return tuple(attrs.evolve(each, command=_command_of(each.pid)) for each in chosen.values())


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _look(pid: int) -> RunningProcess | None:
    """Read the entry of process `pid` in `/proc`; None if the process has ended, even if it is still listed (zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            # After the last `)`: the name of a program may hold spaces and brackets.
            state, parent, _, session, *rest = stream.read().rpartition(")")[2].split()
        ticks = sum(map(int, rest[7:11]))  # user and system, own and children's
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else RunningProcess(pid, int(parent), int(session), ticks / os.sysconf("SC_CLK_TCK"))


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            return stream.read().replace("\0", " ").strip()
    except OSError:
        return ""
