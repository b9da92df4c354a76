"""Types of command line arguments of the benchmarks."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer such as 3")
    return int(text)
