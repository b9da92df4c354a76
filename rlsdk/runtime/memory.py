"""Memory and disk of the process: what is free, checks before large allocations, freed memory. Imports no torch."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

import numpy as np

from rlsdk.errors import ResourceError

SIZE = 16 * 2**20
"""Bytes. The batches of a gradient step need less than twice as many in most trainings."""


# once per process: the C library remembers it
@cache
def keep_freed_memory() -> None:
    """Make the C library keep up to 32 MiB of freed memory, instead of returning it to the system.

    The system clears each page that a process gets back. This took up to a tenth of the time of TQC and SAC, whose batches
    are allocated and freed in every gradient step. glibc holds back twice the size of the largest block that was freed, so
    a block is freed here. It is never written, so it takes no memory. Other C libraries, and a process with
    `MALLOC_TRIM_THRESHOLD_` in its environment, do not change.
    """
    np.empty(SIZE, np.uint8)


def available_bytes() -> int | None:
    """The bytes of memory that this process may still allocate, or None if the system does not report it.

    Systems other than Linux report the total memory.
    """
    if sys.platform == "linux":
        # In a container its limit may be far below what the machine has free.
        limits = [free for free in (_linux_free(), _cgroup_free()) if free is not None]
        return min(limits, default=None)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _linux_free() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _cgroup_free() -> int | None:
    """The bytes left of a container's memory limit (cgroup v2), or None without a limit."""
    # Inside a container this is the folder of its own group.
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (folder / "memory.max").read_text().strip(), (folder / "memory.current").read_text()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Check that `needed` bytes fit into memory; `what` names what needs them.

    Raises:
        ResourceError: they do not fit. The message states both sizes and `advice`.
    """
    free = available_bytes()
    if free is not None and needed > free:
        raise ResourceError(f"{what} needs {gigabytes(needed)}, but only {gigabytes(free)} are free; {advice}")


def require_disk(needed: int, directory: str | Path, what: str, advice: str) -> None:
    """Check that `needed` bytes fit on the disk of an existing `directory`; raises like `require_memory`."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise ResourceError(
            f"{what} needs {gigabytes(needed)} in {str(directory)!r}, but only {gigabytes(free)} are free; {advice}"
        )


def gigabytes(count: int) -> str:
    """A number of bytes as text, such as `1.5 GB` or `20.0 MB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
