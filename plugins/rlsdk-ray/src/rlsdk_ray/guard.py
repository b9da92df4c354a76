"""Kills processes of a Ray that this program started, if they are left over when the program is killed.

Ray's daemons and workers end with the program. Two agent processes that they start do not. So a small process waits until
the program ends, and then kills them. It runs this file as a script, without rlsdk, Ray or site packages.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

SECONDS = 3.0
"""Seconds in which processes may end by themselves."""


def watch() -> Callable[[], None] | None:
    """Start a process that kills all descendants of this process if they outlive it. Call it after Ray was started.

    Returns a function that ends the new process, to be called after Ray was shut down; None on other systems than Linux.
    """
    if not hasattr(os, "pidfd_open") or not os.path.isdir("/proc/self"):
        return None
    numbers = [str(number) for number in descendants(os.getpid())]
    guard = subprocess.Popen(  # noqa: S603  # this file
        [sys.executable, "-I", "-S", __file__, *numbers],
        stdin=subprocess.PIPE,  # closed when this process ends for any reason
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        guard.kill()
        guard.communicate()

    return end


def descendants(root: int) -> list[int]:
    """The ids of the children of the process `root`, of their children, and so on."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", encoding="utf-8") as stream:
                parents[int(name)] = int(stream.read().rpartition(")")[2].split()[1])
    found, waiting = list[int](), [root]
    while waiting:
        parent = waiting.pop()
        children = [child for child, its in parents.items() if its == parent]
        found += children
        waiting += children
    return found


def main(numbers: list[int]) -> None:
    """Wait until the standard input closes, then kill the processes with the ids `numbers` that still run."""
    handles = list[int]()
    for number in numbers:
        with contextlib.suppress(OSError):
            handles.append(os.pidfd_open(number))
    sys.stdin.buffer.read()
    time.sleep(SECONDS)
    for handle in handles:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
