"""Items that are played together in copies of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Work: TypeAlias = Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]]
"""(environments, items) -> results in the order of the items; the environments are made alike."""


def groups(items: Sequence[ItemT], size: int, workers: int = 1) -> list[list[ItemT]]:
    """The items, `size` at a time. For several workers the last groups are half as large, so that all end at about the
    same time; smaller groups play slower, as each item costs less in a larger group."""
    found, start = list[list[ItemT]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found
