"""Where the name of a file ends and its suffix begins."""

from __future__ import annotations

from os import PathLike
from pathlib import Path


def suffix_of(path: str | PathLike[str]) -> str:
    """The suffix of a file's name, with its point; "" where there is none. What begins with a digit is a part of the name.

    >>> suffix_of("curve.png"), suffix_of("curve-0.5"), suffix_of("curve-0.5_seed1")
    ('.png', '', '')
    """
    suffix = Path(path).suffix
    return "" if suffix[1:2].isdigit() else suffix
