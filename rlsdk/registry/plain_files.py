"""Small files beside a plugin's code, read so that a damaged or hostile one costs neither time nor memory, nor hangs."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path

from rlsdk.errors import one_line

LIMIT = 64 * 1024
"""Bytes; the manifests and presets that exist are below 2 kB."""
MOST_DEPTH, MOST_DOTS = 16, 16
"""Brackets inside one another, and parts of a dotted key: tomllib recurses for the first, and takes the cube of the second."""
_TEXTS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments; one that does not end reaches to the end, so that no character is looked at twice."""
_NO_KEY = re.compile(r"[^\w \t.\-]")


class PlainFileError(ValueError):
    """Why a file cannot be read; one line that begins with `is` or `cannot`."""


def read_plain(path: Path, limit: int = LIMIT) -> bytes | None:
    """The content of a regular file, None where there is no file.

    Raises:
        PlainFileError: a pipe, a device or a folder, larger than `limit` bytes, or not readable.
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
    """The text of a regular file in UTF-8, None where there is no file.

    Raises:
        PlainFileError: as `read_plain`, or no UTF-8.
    """
    content = read_plain(path, limit)
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PlainFileError(f"is not UTF-8: byte {error.start}") from None


def read_toml(path: Path) -> dict[str, object] | None:
    """The table in a TOML file, None where there is no file.

    Raises:
        PlainFileError: as `read_text`, no TOML, or nested too deeply.
    """
    text = read_text(path)
    return None if text is None else parse_toml(text)


def parse_toml(text: str) -> dict[str, object]:
    """The table in a text; refused before tomllib would recurse too deeply or take minutes.

    Raises:
        PlainFileError: no TOML, or nested too deeply.
    """
    bare = _TEXTS.sub("", text)
    if _depth(bare) > MOST_DEPTH or any(
        part.count(".") > MOST_DOTS for line in bare.splitlines() for part in _NO_KEY.split(line)
    ):
        raise PlainFileError("is not valid TOML for a plugin: it is nested too deeply")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise PlainFileError(f"is not valid TOML: {one_line(error, 300)}") from None


def _depth(text: str) -> int:
    """How deeply brackets lie inside one another."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
