"""Types of command line arguments of the benchmarks."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer such as 3")
    return int(text)


def share(text: str) -> float:
    """Parse a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number such as 0.7")
    return value
