"""Files that are replaced as a whole: a reader sees the old one or the new one."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rlsdk.errors import ArtifactError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of any kind so that a reader sees the old one or the new one; raises as `write_atomically`."""
    write_atomically(path, lambda stream: stream.write(data))


def write_json(path: Path, content: object) -> None:
    """Write JSON for people, a line for each entry; raises as `write_atomically`."""
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """`write` into a file beside `path`, which then replaces it.

    Raises:
        ArtifactError: the place cannot be written; what was there before is untouched.
    """
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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
