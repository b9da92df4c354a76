"""Child processes for code that may crash, hang or start further processes.

Each child process leads a new session, so that it can be ended together with all processes that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

import attrs

_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {module} import child; child()"


class ChildProcess:
    """A new Python process that runs the function `child` of `module` with the `sys.path` of this one.

    The caller's `__main__` is not imported. So this works in notebooks, with `python -c` and in scripts without
    `if __name__ == "__main__":`.

        process = ChildProcess("my_package.worker", ["fast"])
        try:
            process.popen.wait(20.0)
        finally:
            process.end()
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        """Start it. `arguments` are its `sys.argv[1:]`; the streams are those of `subprocess.Popen`."""
        path = json.dumps(list(map(str, sys.path)))
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START.format(module=module), path, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def running(self) -> tuple[RunningProcess, ...]:
        """Return the processes of its session, also itself, and their descendants; none without `/proc`."""
        return _members(self.popen.pid)

    def end(self) -> None:
        """End it and all processes that it started."""
        for process in self.running():
            process.end()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, signal.SIGKILL)
            else:
                self.popen.kill()
        self.popen.wait()

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


def end_with_parent(parent: int, leave: Callable[[int], object], seconds: float = float("inf")) -> None:
    """Wait until the parent process has ended or the time limit of `seconds` was exceeded by one second, then call `leave(1)`.

    A child process runs this in a thread, so that it ends when its parent is killed.
    """
    limit = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < limit + 1.0:
        time.sleep(0.2)
    leave(1)


@attrs.frozen
class RunningProcess:
    """A running process, with its id and those of its parent and session."""

    pid: int
    parent: int
    session: int
    command: str
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
    return tuple(chosen.values())


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _look(pid: int) -> RunningProcess | None:
    """Read the entry of process `pid` in `/proc`; None if the process has ended, even if it is still listed (zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            state, parent, _, session = stream.read().rpartition(")")[2].split()[:4]
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            command = stream.read().replace("\0", " ").strip()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else RunningProcess(pid, int(parent), int(session), command)
