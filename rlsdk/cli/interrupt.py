"""The message of a command that is stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rlsdk.runtime.output import print_line


@contextmanager
def interrupted(how_to_go_on: str) -> Iterator[None]:
    """Ctrl-C in the block ends the command with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"interrupted; {how_to_go_on}", sys.stderr)
        raise typer.Exit(130) from None
