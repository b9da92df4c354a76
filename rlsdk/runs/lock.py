"""Locks of folders: only one process at a time works in a folder."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from rlsdk.errors import SettingsError

LOCK = ".running"
_held: set[Path] = set()
"""Folders that this process has locked. The locks of the operating system work only between processes."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock an existing folder inside the block. The lock ends with the process, even if the process is killed.

    On file systems without locks, nothing is locked.

    Raises:
        SettingsError: another run has locked the folder. The message names its process.
    """
    path = folder.resolve() / LOCK
    if path in _held:
        raise _in_use(folder, path)
    with contextlib.ExitStack() as stack:
        try:
            handle = _locked(path)
        except BlockingIOError:
            raise _in_use(folder, path) from None
        except OSError:
            handle = None
        if handle is not None:
            _held.add(path)
            stack.callback(_release, path, handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield


def _locked(path: Path) -> int | None:
    """Return the file descriptor of the locked lock file; None on systems without such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except PermissionError:
            os.close(handle)
            raise BlockingIOError from None
        except OSError:
            os.close(handle)
            raise
        os.close(handle)  # another process removed the file in the meantime


def _release(path: Path, handle: int) -> None:
    _held.discard(path)
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(handle)


def _in_use(folder: Path, path: Path) -> SettingsError:
    try:
        holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
    except OSError:
        holder = "another process"
    return SettingsError(f"a run is running in {folder}, by {holder}; wait for its end, or stop it (Ctrl-C or SIGTERM)")
