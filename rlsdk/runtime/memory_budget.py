"""How much memory is free, checked before anything large is allocated."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rlsdk.errors import ResourceError


def available_bytes() -> int | None:
    """Memory this process may still take, or None where the system does not report it."""
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
    """What is left of a container's limit (cgroup v2)."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (folder / "memory.max").read_text().strip(), (folder / "memory.current").read_text()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Refuse what cannot fit.

    Raises:
        ResourceError: states both sizes and `advice`.
    """
    free = available_bytes()
    if free is not None and needed > free:
        raise ResourceError(f"{what} needs {gigabytes(needed)}, but only {gigabytes(free)} are free; {advice}")


def require_disk(needed: int, directory: str | Path, what: str, advice: str) -> None:
    """Refuse what does not fit on the disk of an existing `directory`; raises as `require_memory`."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise ResourceError(
            f"{what} needs {gigabytes(needed)} in {str(directory)!r}, but only {gigabytes(free)} are free; {advice}"
        )


def gigabytes(count: int) -> str:
    """A readable size."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
