"""Numbers on the command line: environment steps (100000, 100_000 or 1e5), and the largest count of each kind."""

from __future__ import annotations

import contextlib
from typing import Any

import typer

from rlsdk.errors import shown
from rlsdk.experiments.run_record import MAX_ENVS, MAX_EPISODES, MAX_RESTORES, MAX_THREADS
from rlsdk.experiments.stored_tables import MAX_COUNT

MOST_SEED = 2**32 - 1
"""The largest seed: the upper bound of the setting `seed`."""
MOST_ENVS, MOST_EPISODES, MOST_RESTORES, MOST_THREADS = MAX_ENVS, MAX_EPISODES, MAX_RESTORES, MAX_THREADS


def steps_option(text: str, least: int = 1) -> Any:
    """Return an option of Typer for a count of environment steps. It also accepts 100_000 and 1e5.

    Args:
        text: the help of the option.
        least: the smallest count, 0 or 1.
    """

    def parse(given: str) -> int:
        number = _whole(str(given))
        if number is None or not least <= number <= MAX_COUNT:
            kind = "positive whole number" if least else "whole number of at least 0"
            raise typer.BadParameter(f"{shown(given, 40)} must be a {kind} up to 2**53, such as 100000 or 1e5")
        return number

    return typer.Option(parser=parse, metavar="<int>", help=text)


def _whole(text: str) -> int | None:
    """Parse a whole number; None if the text is not a number or has decimals."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if (value := float(text)).is_integer():
            return int(value)
    return None
