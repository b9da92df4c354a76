"""Items that are played together in copies of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

ItemT = TypeVar("ItemT")
Work = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Answers for items, in their order, worked out in environments that are all alike."""


def groups(items: Sequence[ItemT], size: int, workers: int = 1) -> list[list[ItemT]]:
    """The items, `size` at a time; for several workers the last groups are half as large, so that all end at about the
    same time. Smaller ones would cost more than is won: what plays many items side by side plays each faster."""
    found, start = list[list[ItemT]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found
