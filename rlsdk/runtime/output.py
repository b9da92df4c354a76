"""Printed text. Texts of files, manifests and environments are printed without control characters; training continues when its
output cannot be written."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

from rlsdk.errors import printable

COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""Codes that set the colour of a terminal."""
BROKEN = (OSError, ValueError, AttributeError, RuntimeError)
"""What printing raises: a closed or full target, none at all, or a print that a signal interrupted."""


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line to `stream` (standard output); it is lost where the stream is closed, full or gone."""
    with contextlib.suppress(*BROKEN):
        print(printable(text), file=sys.stdout if stream is None else stream, flush=True)


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> counted(1, "seed"), counted(2_000, "seed")
    ('1 seed', '2,000 seeds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextlib.contextmanager
def quietly(wanted: bool) -> Iterator[None]:
    """Inside the block nothing is printed on standard output, and no progress; errors and warnings are."""
    if not wanted:
        yield
        return
    token = _quiet.set(True)
    try:
        with _nowhere() as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether progress is left out."""
    return _quiet.get()


class Lasting:
    """A stream that loses what its target does not take, instead of raising."""

    def __init__(self, stream: TextIO) -> None:
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

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class Plain:
    """A stream that writes text as `printable` gives it, in characters its encoding has."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.unescaped, "encoding", None) or "utf-8"
        self.unescaped.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> object:
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


def plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one line, without the file and the code that it comes from, and without the colours of gymnasium."""
    return f"warning: {COLOURS.sub('', str(message)).removeprefix('WARN: ')}\n"


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Inside the block warnings are printed by `plain_warning`, and so are those of processes that an executor starts."""
    before = warnings.formatwarning
    warnings.formatwarning = plain_warning
    try:
        yield
    finally:
        warnings.formatwarning = before


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _let_go(stream: TextIO | None) -> None:
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
