"""Parsers of numbers on the command line: environment steps (100000, 100_000 or 1e5) and the largest seed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import typer

from rlsdk.errors import shown

METAVAR = "<int>"
MOST_SEED = 2**32 - 1
"""The largest seed: the upper bound of the setting `seed`."""


def steps_from(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` (0 or 1) to 2**63 - 1. It reads 1e5 as 100,000."""

    def parse(text: str) -> int:
        number = _whole(str(text))
        if number is None or not least <= number < 2**63:
            kind = "positive whole number" if least else "whole number of at least 0"
            raise typer.BadParameter(f"{shown(text, 40)} must be a {kind} below 2**63, such as 100000 or 1e5")
        return number

    return parse


def _whole(text: str) -> int | None:
    """Parse a whole number; None if the text is not a number or has decimals."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if (value := float(text)).is_integer():
            return int(value)
    return None
