"""Reading small files of settings and of plugins, with limits: a damaged or hostile file costs little time and memory."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path

from rlsdk.errors import one_line

LIMIT = 64 * 1024
"""The largest size of a file in bytes. The existing manifests and presets are below 2 kB."""
MOST_DEPTH, MOST_DOTS = 16, 16
"""The largest depth of nested brackets and the largest number of dots in a dotted key. tomllib recurses for each bracket. Its
time grows with the cube of the number of parts of a key."""
_TEXTS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Matches strings and comments. A string without an end matches up to the end of its line or of the text, so that every
character is scanned only once."""
_NO_KEY = re.compile(r"[^\w \t.\-]")


class PlainFileError(ValueError):
    """A file cannot be read; the message is the reason, one line that begins with `is` or `cannot`."""


def read_plain(path: Path, limit: int = LIMIT) -> bytes | None:
    """Return the content of a regular file; None if there is no file.

    Raises:
        PlainFileError: the path is a pipe, a device or a folder, or the file is larger than `limit` bytes or not readable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PlainFileError(f"cannot be read: {one_line(getattr(error, 'strerror', None) or error, 300)}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PlainFileError("is not a regular file")
        with open(descriptor, "rb", closefd=False) as stream:
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
    """Parse a text in TOML. Texts for which tomllib would recurse too deeply or take minutes are refused first.

    Raises:
        PlainFileError: the text is not valid TOML, or it is nested too deeply.
    """
    bare = _TEXTS.sub("", text)
    if _depth(bare) > MOST_DEPTH or any(
        part.count(".") > MOST_DOTS for line in bare.splitlines() for part in _NO_KEY.split(line)
    ):
        raise PlainFileError("is not valid TOML here: it is nested too deeply")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number with 5,000 digits raises a plain ValueError
        raise PlainFileError(f"is not valid TOML: {one_line(error, 300)}") from None


def _depth(text: str) -> int:
    """Return the depth of nested brackets in the text."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
