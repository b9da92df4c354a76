"""Captures what a function writes to standard output and error."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator


def written_during(work: Callable[[], object]) -> str:
    """Call `work`, and return what it writes to standard output and error, from Python, C and processes that it starts.

    Warnings and records of `logging` are left out, because the program that uses a plugin configures where those go.
    """
    text = io.StringIO()
    with tempfile.TemporaryFile() as file, _no_remarks():
        with _redirected(file.fileno()), contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            work()
        file.seek(0)
        return text.getvalue() + file.read().decode("utf-8", "replace")


@contextlib.contextmanager
def _redirected(target: int) -> Iterator[None]:
    """Redirect the file descriptors 1 and 2 to `target` inside the `with` statement."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in saved:
            os.dup2(target, number)
        yield
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def _no_remarks() -> Iterator[None]:
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)  # without any handler, logging writes to standard error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().removeHandler(handler)
