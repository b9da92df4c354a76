"""Child processes for code that may crash, hang or start processes of its own.

Each is the leader of a session of its own, so that it can be ended with everything that it started.
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

from rlsdk.errors import one_line

ASK_STACK = getattr(signal, "SIGUSR1", None)
"""Signal on which a child may write its stack; None on Windows."""
_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {module} import child; child()"


def start(
    module: str, arguments: Sequence[str], *, stdin: int, stdout: int, stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Run the function `child` of a module in a new interpreter with this one's `sys.path`; `arguments` are in `sys.argv[1:]`.

    Nothing of the caller's `__main__` is imported, so it works in scripts without a guard, in notebooks and with `python -c`.
    """
    command = [sys.executable, "-c", _START.format(module=module), json.dumps(list(map(str, sys.path))), *arguments]
    return subprocess.Popen(  # noqa: S603
        command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End the child and what it started."""
    for member in members(process.pid):
        end_member(member)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def how_it_ended(code: int) -> str:
    """What an exit code means: "ended the process ..."."""
    if code >= 0:
        return f"ended the process with exit code {code}"
    name = signal.Signals(-code).name if -code in {int(kind) for kind in signal.Signals} else f"signal {-code}"
    return f"ended the process by {name}"


def last_line(errors: str) -> str:
    """ ": " and the last line of what a child wrote; nothing where it wrote nothing."""
    lines = errors.strip().splitlines()
    return f": {one_line(lines[-1], 200)}" if lines else ""


def end_with_parent(parent: int, leave: Callable[[int], object], seconds: float = float("inf")) -> None:
    """Body of a thread of a child: end with a parent that was killed, and a second after the time limit at the latest."""
    limit = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < limit + 1.0:
        time.sleep(0.2)
    leave(1)


@attrs.frozen
class Member:
    """A process that runs."""

    pid: int
    parent: int
    session: int
    command: str
    """Its command line."""


def end_member(member: Member) -> None:
    """End one process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(member.pid, signal.SIGKILL)


def members(leader: int) -> tuple[Member, ...]:
    """The processes of a child's session, and what their processes started; none where the system has no `/proc`."""
    everything = [found for name in _numbers() if (found := _look(int(name))) is not None]
    chosen = {each.pid: each for each in everything if each.session == leader or each.pid == leader}
    while more := {each.pid: each for each in everything if each.parent in chosen and each.pid not in chosen}:
        chosen |= more
    return tuple(chosen.values())


def private_bytes(pid: int) -> int:
    """Memory of a process that no file backs; 0 where it ended or the system has no `/proc`."""
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
    """One entry of `/proc`; None for a process that ended, also where its exit code was not read yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            state, parent, _, session = stream.read().rpartition(")")[2].split()[:4]
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            command = stream.read().replace("\0", " ").strip()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else Member(pid, int(parent), int(session), command)
