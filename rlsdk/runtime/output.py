"""Functions that print text. Text from files, manifests and environments is printed without control characters. Training
continues if its output cannot be written."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TextIO

from rlsdk.errors import printable

COLORS = re.compile("\x1b\\[[0-9;]*m")
"""The escape codes that set colors in a terminal."""
MARK = re.compile(r"\A(?P<red>error: )|\A(?P<yellow>warning: )")
PAGE = re.compile(r"^(?P<bold>Usage:|\S.*:$)|(?<=^  )(?P<cyan>-[^\s,]+(?:(?:, | / )-[^\s,]+)*|\S+(?=  ))", re.MULTILINE)
"""On the page of a command: titles, and the names of options, arguments and commands."""
STYLED = {"error": MARK, "warning": MARK, "Usage": PAGE}
"""First word of a text -> what has a style in it."""
STYLES: Mapping[str | None, str] = {"red": "1;31", "yellow": "33", "bold": "1", "cyan": "36"}
STREAM_ERRORS = (OSError, ValueError, AttributeError, RuntimeError)
"""The errors that printing raises when the stream is closed, full or missing, or when a signal interrupts it."""


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line to `stream` (default: standard output). The line is lost if the stream is closed, full or missing."""
    # Training continues if its output cannot be written.
    with contextlib.suppress(*STREAM_ERRORS):
        print(printable(text), file=sys.stdout if stream is None else stream, flush=True)


def wrapped(text: str, indent: int) -> str:
    """Break a line between words where the terminal ends, at 110 columns at most; `indent` spaces begin the further lines.

    Not for lines with a command, which are copied as a whole.
    """
    width = min(max(shutil.get_terminal_size().columns, 40), 110)
    margin = " " * indent
    return textwrap.fill(text, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)


def plain_help(text: str) -> str:
    """Return a text of Typer's help without Python's names of types, and without ranges, which errors name.

    >>> plain_help("--episodes <int range>"), plain_help("Steps.  [default: 20; 1<=x<=100]")
    ('--episodes <int>', 'Steps.  [default: 20]')
    """
    text = re.sub(r"<(?:list\[)?(\w+)(?: range)?\]?>", lambda kind: f"<{kind[1].lower().replace('str', 'text')}>", text)
    return re.sub(r"; [\d<=]*x[<>=]+\d+(?=\])|  \[[\d<=]*x[<>=]+\d+\]", "", text)


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> counted(1, "seed"), counted(2_000, "seed")
    ('1 seed', '2,000 seeds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextlib.contextmanager
def quietly(wanted: bool) -> Iterator[None]:
    """If `wanted`, discard standard output and progress inside the block; errors and warnings are still printed."""
    if not wanted:
        yield
        return
    token = _quiet.set(True)
    try:
        # Standard output as a whole: libraries and environments print without asking `is_quiet`.
        with _null_device() as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether this code runs inside `quietly`, so that progress is not printed."""
    return _quiet.get()


class LossyStream:
    """A wrapper of a stream that discards text which the stream cannot take, instead of raising an error."""

    def __init__(self, stream: TextIO) -> None:
        # Progress bars need their escape codes, which `PrintableStream` would write as text.
        self.stream = getattr(stream, "unescaped", stream)

    def write(self, text: str) -> int:
        with contextlib.suppress(*STREAM_ERRORS):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(*STREAM_ERRORS):
            self.stream.flush()

    def isatty(self) -> bool:
        with contextlib.suppress(*STREAM_ERRORS):
            return bool(self.stream.isatty())
        return False

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class PrintableStream:
    """A wrapper of a stream that passes text through `printable` and escapes characters that the encoding lacks.

    In a terminal, errors, warnings and pages of commands have colors, unless NO_COLOR is set. An OSError, for example of a full
    disk, names the stream.
    """

    def __init__(self, stream: TextIO, name: str = "standard output") -> None:
        self.unescaped, self._name = stream, name

    def write(self, text: str) -> int:
        encoding = getattr(self.unescaped, "encoding", None) or "utf-8"
        with self._name_in_errors():
            # A terminal with an ASCII encoding would raise UnicodeEncodeError for a name in a file or manifest.
            plain = printable(text).encode(encoding, "backslashreplace").decode(encoding)
            pattern = STYLED.get(plain[:9].partition(": ")[0])
            if pattern is not None and self.unescaped.isatty() and not os.environ.get("NO_COLOR"):
                plain = pattern.sub(lambda part: f"\x1b[{STYLES[part.lastgroup]}m{part[0]}\x1b[0m", plain)
            self.unescaped.write(plain)
        return len(text)

    def flush(self) -> None:
        with self._name_in_errors():
            self.unescaped.flush()

    @contextlib.contextmanager
    def _name_in_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = error.filename or self._name
            raise

    def __getattr__(self, name: str) -> object:
        return getattr(self.unescaped, name)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Inside the block standard output and error are `PrintableStream`. Afterwards both are flushed, so that Python cannot fail
    on them when it exits."""
    before = sys.stdout, sys.stderr
    named = zip(before, ("standard output", "standard error"), strict=True)
    sys.stdout, sys.stderr = (
        PrintableStream(stream, name) if stream is not None else _null_device() for stream, name in named
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _flush_or_discard(stream)


def plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """The text of a warning on one line, without its file and line of code, and without the colors of gymnasium."""
    return f"warning: {COLORS.sub('', str(message)).removeprefix('WARN: ')}\n"


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Inside the block, format warnings with `plain_warning`; processes that an executor starts do the same."""
    before = warnings.formatwarning
    warnings.formatwarning = plain_warning
    try:
        yield
    finally:
        warnings.formatwarning = before


def _null_device() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _flush_or_discard(stream: TextIO | None) -> None:
    """Flush a stream; if that fails, redirect it to the null device."""
    if stream is None:
        return
    # Python flushes the stream again when it exits: the failure would end a finished command with an error.
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
