"""Text for people. What files, manifests and environments say is printed without its control characters; and a training
outlives the terminal or file it prints to."""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, TextIO

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that move the cursor, reorder or hide text, or cannot be encoded."""
BROKEN = (OSError, ValueError, AttributeError, RuntimeError)
"""What printing raises: a closed or full target, none at all, or a print that a signal interrupted."""


def printable(text: str) -> str:
    r"""`text` with control characters written as escapes; newlines and tabs stay.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in HIDDEN else _escaped(c) for c in text)


def one_line(value: object, most: int | None = None) -> str:
    r"""The text of a value, for one line of a table or message: newlines and tabs are escaped too. Of a text with more than
    `most` characters the rest is left out.

    >>> one_line("a\nb")
    'a\\nb'
    >>> one_line("abcdef", 3)
    'abc...'
    """
    cut = str(value) if most is None else str(value)[: most + 1]  # escapes make it longer, never shorter
    text = "".join(_escaped(c) if c in "\n\t" else c for c in printable(cut))
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 300) -> str:
    """`repr` of a value for a message: on one line, at most about `most` characters, and of values whose `repr` raises too.

    >>> shown("a" * 9, 4)
    "'aaa..."
    """
    try:
        text = repr(value)
    except Exception as error:
        if isinstance(value, int):  # of more than 4,300 digits
            return "a very large number"
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return one_line(" ".join(line.strip() for line in text.splitlines()), most)  # arrays have a line for each row


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def tell(text: str, stream: TextIO | None = None) -> None:
    """Print a line to `stream` (standard output); it is lost where the stream is closed, full or gone."""
    with contextlib.suppress(*BROKEN):
        print(printable(text), file=sys.stdout if stream is None else stream, flush=True)


class Lasting:
    """A stream that loses what its target does not take, instead of raising."""

    def __init__(self, stream: Any) -> None:
        self.stream = getattr(stream, "unescaped", stream)

    def write(self, text: str) -> int:
        with contextlib.suppress(*BROKEN):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(*BROKEN):
            self.stream.flush()

    def isatty(self) -> bool:
        with contextlib.suppress(*BROKEN):
            return bool(self.stream.isatty())
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Plain:
    """A stream that writes text as `printable` gives it, in characters its encoding has."""

    def __init__(self, stream: Any) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.unescaped, "encoding", None) or "utf-8"
        self.unescaped.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Inside the block standard output and error are `Plain`; afterwards nothing is left to fail when Python ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Plain(stream) if stream is not None else _nowhere() for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _let_go(stream)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _let_go(stream: Any) -> None:
    """Flush a stream, and turn it to nowhere where that fails."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
