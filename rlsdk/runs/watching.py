"""Show the progress of runs in other processes, such as the seeds of a sweep: the newest line of each log."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlsdk.runtime.output import is_quiet, print_line

SECONDS = 10.0
"""Seconds between two reads of the logs."""
LAST_BYTES = 400


@contextlib.contextmanager
def watching(folders: Mapping[str, Path], seconds: float = SECONDS) -> Iterator[None]:
    """Inside the block, print a line for each run that has made progress since the last read. `folders`: name -> run directory.

    Logs that this machine does not see, such as those of an executor on other machines, are left out.
    """
    if is_quiet():
        yield
        return
    stop, shown = threading.Event(), {name: _progress(folder / "log.txt") for name, folder in folders.items()}
    watcher = threading.Thread(target=_watch, args=(dict(folders), shown, stop, seconds), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(folders: Mapping[str, Path], shown: dict[str, str], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        for name, folder in folders.items():
            line = _progress(folder / "log.txt")
            if line and line != shown[name]:
                shown[name] = line
                print_line(f"{name}: {line}", sys.stderr)


def _progress(log: Path) -> str:
    """Return the newest line about steps in a log; "" if there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((" ".join(line.split()) for line in reversed(lines) if " steps " in line and " left" in line), "")
