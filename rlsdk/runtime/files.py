"""Files: written whole or not at all, read with limits, and their places and suffixes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import struct
import tempfile
import tomllib
from collections.abc import Callable
from ctypes import CDLL
from hashlib import sha256
from pathlib import Path
from typing import IO, Generic, TypeVar, cast
from weakref import ref

from rlsdk.errors import ArtifactError, one_line, require_file_name

ResultsT = TypeVar("ResultsT", bound="tuple[object, ...]")


LARGE = 2**20
"""From this many bytes on, writing begins before the file is complete."""


def write_whole(path: Path, data: bytes) -> None:
    """Write bytes to a file atomically; raises like `write_atomically`."""
    write_atomically(path, lambda stream: stream.write(data))


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically, with one entry per line for human readers; raises like `write_atomically`."""
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


SEAL = re.compile(r"\n(?:# |<!-- )unedited: ([0-9a-f]{16})(?: -->)?\n\Z")
"""The last line of a written text, as a comment in TOML or HTML. It has the digest of the text before it."""


def sealed(text: str, comment: str = "<!-- {} -->") -> str:
    """Return a text with a last line by which `is_edited` recognizes it. `comment`: a comment in the text's language."""
    return f"{text}\n{comment.format(f'unedited: {sha256(text.encode()).hexdigest()[:16]}')}\n"


def is_edited(text: str) -> bool:
    """Whether a text is anything but the result of `sealed`."""
    found = SEAL.search(text)
    return found is None or found[1] != sha256(text[: found.start()].encode()).hexdigest()[:16]


def append_whole(path: Path, data: bytes) -> None:
    """Append bytes to a file.

    Raises:
        OSError: they cannot be written, for example because the disk is full; it names the file. No part of them remains in
            the file.
    """
    before = path.stat().st_size if path.exists() else 0
    try:
        # Without a buffer there is one call of the system, whose result shows what part was written.
        with path.open("ab", buffering=0) as stream:
            # A disk that becomes full takes a part without an error.
            if stream.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        # Half a line would spoil the next one that is appended.
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
        # the table of sections is the last part of the file
        end, there = start + size * count, path.stat().st_size
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
    # The temporary file is in the same folder: `os.replace` is atomic inside a file system only.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            write(stream)
            stream.flush()
            # Before the file gets its name: after a power failure the name could otherwise belong to an empty file.
            os.fsync(stream.fileno())
        # `tempfile` makes files that only their owner can read.
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
    # Python can read the mask only by setting it.
    current = os.umask(0)
    os.umask(current)
    return current


PATH_SETTINGS = ("tensorboard_log", "replay_buffer_kwargs.directory")
"""Settings of agents (dotted names) that name a path on disk."""
NAMES = re.compile("path|folder|dir|file|prefix|url|log_to|command")
"""A pattern in the names of settings and attributes that hold a path, an address or a command."""
TEXT = re.compile(r"[/\\\x00-\x1f]|\.\.|^~|^[A-Za-z]:")
"""A pattern in text that may be a path, an address or a command."""


def may_be_place(name: str, text: str) -> bool:
    """Whether `text`, the value of the setting or attribute `name`, may be a path, an address or a command.

    >>> may_be_place("log_dir", "mine"), may_be_place("activation", "relu"), may_be_place("activation", "/etc")
    (True, False, True)
    """
    return NAMES.search(name.lower()) is not None or TEXT.search(text) is not None


class LastPrepared(Generic[ResultsT]):
    """The results that were last prepared for some objects, as long as somebody else holds the results.

    The results must hold these objects. Usually a function is prepared that knows the addresses of a rollout's storage, and the
    next rollout in the same storage calls it too. This object does not hold the storage.
    """

    def __init__(self) -> None:
        self._ids: tuple[int, ...] = ()
        self._results: tuple[ref[object], ...] = ()

    def find(self, *given: object) -> ResultsT | None:
        """Return the results that were prepared for these very objects; None if they must be prepared."""
        # results hold their objects, so while they exist no other objects can have these ids
        if self._ids != tuple(map(id, given)):
            return None
        results = tuple([result() for result in self._results])
        return None if any(result is None for result in results) else cast("ResultsT", results)

    def remember(self, results: ResultsT, *given: object) -> ResultsT:
        """Remember the results that were prepared for `given`, and return them."""
        self._ids, self._results = tuple(map(id, given)), tuple(map(ref, results))
        return results

    def __reduce__(self) -> tuple[type[LastPrepared[ResultsT]], tuple[()]]:
        # a copy prepares its own results
        return LastPrepared, ()


LIMIT = 4 * 1024
"""The largest size, in bytes, of a manifest or preset; the existing ones are below 2 kB. The time of tomllib grows with the
square of the parts of a dotted key: 4 kB of dots take 0.1 s, 64 kB take a minute."""
MOST_DEPTH = 16
"""The largest depth of nested tables and lists: code that reads the values may recurse."""


class PlainFileError(ValueError):
    """A file cannot be read; the message is the reason, one line that begins with `is` or `cannot`."""


def read_plain(path: Path, limit: int = LIMIT) -> bytes | None:
    """Return the content of a regular file; None if there is no file.

    Raises:
        PlainFileError: the path is a pipe, a device or a folder, or the file is larger than `limit` bytes or not readable.
    """
    try:
        # O_NONBLOCK: opening a pipe that has no writer would wait for ever. O_BINARY exists on Windows only.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PlainFileError(f"cannot be read: {one_line(getattr(error, 'strerror', None) or error, 300)}") from None
    try:
        # Of the open file, because the path may lead to another one by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PlainFileError("is not a regular file")
        with open(descriptor, "rb", closefd=False) as stream:
            # One byte more than allowed shows that the file is too large. Its size on the disk may change while it is read.
            content = stream.read(limit + 1)
    except OSError as error:
        raise PlainFileError(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise PlainFileError(f"is larger than {limit // 1024} kB")
    return content


def read_text(path: Path, limit: int = LIMIT) -> str | None:
    """Return the text of a regular file in UTF-8; None if there is no file.

    Raises:
        PlainFileError: as in `read_plain`, or the file is not UTF-8.
    """
    content = read_plain(path, limit)
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PlainFileError(f"is not UTF-8: byte {error.start}") from None


def read_toml(path: Path) -> dict[str, object] | None:
    """Return the content of a TOML file; None if there is no file.

    Raises:
        PlainFileError: as in `read_text`, or the file is not valid TOML or is nested too deeply.
    """
    text = read_text(path)
    return None if text is None else parse_toml(text)


def parse_toml(text: str) -> dict[str, object]:
    """Parse a text in TOML, of which the caller has limited the size.

    Raises:
        PlainFileError: the text is not valid TOML, or it is nested too deeply.
    """
    try:
        found = tomllib.loads(text)
        _require_shallow(found)
    except RecursionError:
        raise PlainFileError("is not valid TOML here: it is nested too deeply") from None
    except ValueError as error:
        # a number with 5,000 digits raises a plain ValueError
        raise PlainFileError(f"is not valid TOML: {one_line(error, 300)}") from None
    return found


def _require_shallow(value: object, depth: int = 0) -> None:
    if depth > MOST_DEPTH:
        raise RecursionError
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_shallow(inner, depth + 1)
