"""What tests send to other processes, and processes that must end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

LINUX = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found through /proc")


@attrs.frozen(eq=False)
class Item:
    first: Any
    second: Any
    note: str = ""


def look(item: Item) -> tuple[float, float, bool, str]:
    return float(item.first.sum()), float(item.second.sum()), bool(item.first.flags.writeable), item.note


def alive(mark: str) -> list[int]:
    """The ids of the processes with `mark` in their environment variables, which children inherit from their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found += [int(entry.name)] * (") Z" not in (entry / "stat").read_text())
        except OSError:
            continue
    return found


def require_all_end(process: subprocess.Popen[str], mark: str, *, settle: float, children: int, within: float) -> None:
    """Kill a program `settle` seconds after it has printed "ready"; every process with `mark` must end `within` seconds.

    Before the kill, the program must have at least `children` worker processes.
    """
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(settle)
    assert len(alive(mark)) > children
    process.kill()
    end = time.monotonic() + within
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.1)
    left = alive(mark)
    for number in left:
        os.kill(number, signal.SIGKILL)
    assert not left
