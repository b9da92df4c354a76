"""The message of a command that the user interrupts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rlsdk.runtime.output import print_line


@contextmanager
def interrupted(how_to_go_on: str) -> Iterator[None]:
    """End the command with one line of text and exit code 130 if the user presses Ctrl-C inside the block."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"interrupted; {how_to_go_on}", sys.stderr)
        raise typer.Exit(130) from None
