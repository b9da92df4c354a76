"""Write files atomically: a reader sees the old file or the new file, never a part of one. Libraries are loaded whole too."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from ctypes import CDLL
from pathlib import Path
from typing import IO

from rlsdk.errors import ArtifactError, require_file_name

LARGE = 2**20
"""From this many bytes on, writing begins before the file is complete."""


def write_whole(path: Path, data: bytes) -> None:
    """Write bytes to a file atomically; raises like `write_atomically`."""
    write_atomically(path, lambda stream: stream.write(data))


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically, with one entry per line for human readers; raises like `write_atomically`."""
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def write_csv(path: Path, header: Sequence[object], rows: Iterable[Iterable[object]]) -> None:
    """Write a table in CSV atomically; raises like `write_atomically`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def append_whole(path: Path, data: bytes) -> None:
    """Append bytes to a file.

    Raises:
        OSError: they cannot be written, for example because the disk is full; it names the file. No part of them remains in
            the file.
    """
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab", buffering=0) as stream:
            if stream.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, before)
        error.filename = str(path)
        raise


def open_library(path: Path) -> CDLL:
    """Load a shared library.

    Raises:
        OSError: the system cannot load it, or it is an ELF file that was cut off, for example while it was copied. The system
            would load a part of it, and end the process by SIGBUS where the rest is used.
    """
    with path.open("rb") as stream:
        head = stream.read(64)
    if len(head) == 64 and head[:4] == b"\x7fELF":
        order, is_long = "<" if head[5] == 1 else ">", head[4] == 2
        (start,) = struct.unpack_from(order + ("Q" if is_long else "I"), head, 40 if is_long else 32)
        size, count = struct.unpack_from(order + "HH", head, 58 if is_long else 46)
        end, there = start + size * count, path.stat().st_size  # the table of sections is the last part of the file
        if there < end:
            raise OSError(f"the file is cut off: it has {there:,} of at least {end:,} bytes")
    return CDLL(str(path))


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write` with a temporary file in the folder of `path`, and then replace `path` with that file.

    Raises:
        ArtifactError: the file cannot be written; an existing file is unchanged.
    """
    require_file_name(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}; choose a writable place with free space"
        ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def begin_writeback(stream: IO[bytes], size: int) -> None:
    """Ask the system to begin writing the last `size` bytes of `stream` to the disk, so that `fsync` waits less.

    Nothing happens for few bytes, for a stream in memory, and where the system offers no such call.
    """
    if size >= LARGE and hasattr(os, "posix_fadvise"):
        # Linux answers "not needed" by writing modified pages, and drops from memory only those it has written before
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(stream.fileno(), stream.tell() - size, size, os.POSIX_FADV_DONTNEED)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
