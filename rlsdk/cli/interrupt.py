"""What a command says when it is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def interrupted(how_to_go_on: str) -> Iterator[None]:
    """Ctrl-C in the block ends the command with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {how_to_go_on}", err=True)
        raise typer.Exit(130) from None
