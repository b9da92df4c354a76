"""Groups of items, such as candidates, that are played together in copies of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Work: TypeAlias = Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]]
"""A function (environments, items) -> results in the order of the items. The environments are copies of one environment."""


def groups(items: Sequence[ItemT], size: int, workers: int = 1) -> list[list[ItemT]]:
    """Split the items into groups of `size` items.

    With several workers, the last groups have fewer items, but at least about `size` / 2, so that all workers finish at about
    the same time. Smaller groups would be slower, because an item takes less time in a larger group.
    """
    found, start = list[list[ItemT]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found
