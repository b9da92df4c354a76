"""Entry point of the `rlsdk` command."""

from __future__ import annotations

import faulthandler
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from rlsdk.cli.commands import CommandGroup
from rlsdk.cli.interrupt import heeded
from rlsdk.errors import RlsdkError
from rlsdk.runtime.output import plain_output, plain_warnings, print_line

app = typer.Typer(
    cls=CommandGroup,
    name="rlsdk",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlsdk {version('rlsdk')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[  # read by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train, evaluate and inspect reinforcement-learning agents; algorithms are plugins."""


def main() -> None:
    """Run the command line. For errors meant for users, print one message and end with exit code 1.

    If C code crashes, such as that of a plugin or an environment, Python prints where.
    """
    if not faulthandler.is_enabled():
        with suppress(AttributeError, RuntimeError, OSError, ValueError):  # standard error is missing or no file
            faulthandler.enable(all_threads=False)
    with heeded(), plain_output(), plain_warnings():
        _run()


def _run() -> None:
    try:
        app()
    except RlsdkError as error:
        print_line(f"error: {error}", sys.stderr)
        sys.exit(1)
    except OSError as error:  # for example a full disk, or a folder that was removed
        print_line(
            f"error: {error}; files written before are complete; free some space or choose another place", sys.stderr
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
