"""Checks of free memory and disk space before anything large is allocated."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rlsdk.errors import ResourceError


def available_bytes() -> int | None:
    """The bytes of memory that this process may still allocate, or None if the system does not report it.

    Systems other than Linux report the total memory.
    """
    if sys.platform == "linux":
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
