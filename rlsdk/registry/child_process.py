"""Child processes for code that may crash, hang or start further processes.

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
import time
from collections.abc import Callable, Sequence
from typing import IO

import attrs

from rlsdk.errors import one_line
from rlsdk.runtime.memory_budget import available_bytes, gigabytes

ASK_STACK = getattr(signal, "SIGUSR1", None)
"""The signal that asks a child to write its stack; None on Windows."""
MEMORY = 4 * 10**9
"""The memory limit, in bytes, of a child and the processes it starts; lower if less is free. See `memory_limit`."""
POLL, STACK = 0.05, 1.0
"""Seconds between checks of a child, and seconds that a hanging child has to write its stack."""
_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {module} import child; child()"


def start(
    module: str, arguments: Sequence[str], *, stdin: int, stdout: int, stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Run the function `child` of `module` in a new Python process with the `sys.path` of this one.

    `arguments` are its `sys.argv[1:]`. The caller's `__main__` is not imported. So this works in notebooks, with `python -c`
    and in scripts without `if __name__ == "__main__":`.
    """
    command = [sys.executable, "-c", _START.format(module=module), json.dumps(list(map(str, sys.path))), *arguments]
    return subprocess.Popen(  # noqa: S603
        command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End the child process and all processes that it started."""
    for member in members(process.pid):
        end_member(member)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def how_it_ended(code: int) -> str:
    """Return the meaning of an exit code, as text that begins with "ended the process"."""
    if code >= 0:
        return f"ended the process with exit code {code}"
    name = signal.Signals(-code).name if -code in {int(kind) for kind in signal.Signals} else f"signal {-code}"
    return f"ended the process by {name}"


def last_line(errors: str) -> str:
    """Return ": " and the last line of `errors`, the error output of a child; an empty text if there is none."""
    lines = errors.strip().splitlines()
    return f": {one_line(lines[-1], 200)}" if lines else ""


_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)


def write_stacks() -> None:
    """Let this child write its stack to its error output if it crashes, or if the parent sends the signal `ASK_STACK`.

    `faulthandler.dump_traceback_later` is not used: its thread reads the frames of running threads, and so can crash.
    Stacks are written to a separate file descriptor, because standard error may be captured or closed.
    """
    errors = os.dup(2)
    faulthandler.enable(errors)
    if ASK_STACK is not None:
        faulthandler.register(ASK_STACK, errors, all_threads=False)


def ask_stack(process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    """Let a hanging child write its stack into `output`, its error output. The stack shows where it hangs."""
    if ASK_STACK is not None and process.poll() is None:
        before, end = os.fstat(output.fileno()).st_size, time.monotonic() + STACK
        process.send_signal(ASK_STACK)
        while os.fstat(output.fileno()).st_size == before and time.monotonic() < end:
            time.sleep(POLL)


def place_in(output: str, package: str) -> str:
    """Return the function and line in which the code of `package` was when its process ended or hung.

    They are read from the stacks that Python wrote into `output`, innermost call first. Without a stack, return the last line.
    """
    for path, line, function in _FRAME.findall(output):
        _, folder, rest = path.replace("\\", "/").rpartition(f"/{package}/")
        if folder:
            return f" in {function} ({package}/{rest}, line {line})"
    return "" if _FRAME.search(output) else last_line(output)


def memory_limit() -> int:
    """Return the largest number of bytes that a child may use: `MEMORY`, or nine tenths of what is free if that is less."""
    return min(MEMORY, int(0.9 * (available_bytes() or MEMORY)))


def too_much_memory(leader: int, limit: int) -> str | None:
    """Return text about a child that uses more than `limit` bytes, with the processes it started; else None.

    It reads `/proc`, and returns None without it. A limit of the address space (`RLIMIT_AS`) is not used: it would also count
    memory that is reserved and never used, as by CUDA and threads. It would not count processes that the child starts.
    """
    running = members(leader)
    if sum(private_bytes(each.pid) for each in running) <= limit:
        return None
    count = f", in {len(running)} processes" if len(running) > 1 else ""
    return f"used more than {gigabytes(limit)} of memory{count}"


def end_with_parent(parent: int, leave: Callable[[int], object], seconds: float = float("inf")) -> None:
    """Wait until the parent process has ended or the time limit of `seconds` was exceeded by one second, then call `leave(1)`.

    A child process runs this in a thread, so that it ends when its parent is killed.
    """
    limit = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < limit + 1.0:
        time.sleep(0.2)
    leave(1)


@attrs.frozen
class Member:
    """A running process, with its id and those of its parent and session."""

    pid: int
    parent: int
    session: int
    command: str
    """The command line of the process."""


def end_member(member: Member) -> None:
    """End one process by SIGKILL."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(member.pid, signal.SIGKILL)


def members(leader: int) -> tuple[Member, ...]:
    """Return the processes of the session that `leader` leads, and their descendants; none without `/proc`."""
    everything = [found for name in _numbers() if (found := _look(int(name))) is not None]
    chosen = {each.pid: each for each in everything if each.session == leader or each.pid == leader}
    while more := {each.pid: each for each in everything if each.parent in chosen and each.pid not in chosen}:
        chosen |= more
    return tuple(chosen.values())


def private_bytes(pid: int) -> int:
    """Return the bytes of memory of a process that no file backs; 0 if it has ended or the system has no `/proc`."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
            lines = [line.split() for line in stream if line.startswith(("RssAnon:", "RssShmem:"))]
        return sum(int(words[1]) * 1024 for words in lines)
    except (OSError, ValueError, IndexError):
        return 0


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _look(pid: int) -> Member | None:
    """Read the entry of process `pid` in `/proc`; None if the process has ended, even if it is still listed (zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            state, parent, _, session = stream.read().rpartition(")")[2].split()[:4]
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            command = stream.read().replace("\0", " ").strip()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else Member(pid, int(parent), int(session), command)
