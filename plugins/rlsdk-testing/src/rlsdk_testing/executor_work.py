"""Functions that the clauses about executors run in other processes. They are in a module so that these can import them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import RlsdkError, SettingsError


class TwoPartError(Exception):
    """An error whose constructor has other arguments than the message, as in many packages."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"code {code}: {reason}")


@attrs.frozen
class Arrays:
    """An item with its own array, and an array that it shares with other items."""

    number: int
    own: NDArray[np.float64]
    shared: NDArray[np.float64]


@attrs.frozen
class Begun:
    """An item that creates a file in `folder` when its work begins."""

    folder: Path
    number: int


def square(item: int) -> int:
    """Return the square of `item`. Small items take longer, so that the items end in another order than they began."""
    time.sleep(max(0.0, 0.02 - 0.002 * item))
    return item * item


def process_of(item: object) -> int:
    """Return the id of the process that runs this function."""
    return os.getpid()


def fail(kind: str) -> None:
    """Raise the error called `kind`, from a function that this one calls."""
    somewhere_deep(kind)


def somewhere_deep(kind: str) -> None:
    """Raise the error called `kind`. The name of this function must appear in the traceback."""
    errors: dict[str, Exception] = {
        "SettingsError": SettingsError("a setting"),
        "ValueError": ValueError("a value", 3),
        "KeyError": KeyError("a key"),
        "TwoPartError": TwoPartError(7, "a reason"),
    }
    raise errors[kind]


def begin(item: Begun) -> int:
    """Create a file and return the item's number. This is slow, so that later items wait."""
    (item.folder / str(item.number)).touch()
    time.sleep(0.05)
    return item.number


def begin_then_fail(item: Begun) -> int:
    """Create a file and return the item's number; item 0 raises an error."""
    (item.folder / str(item.number)).touch()
    if item.number == 0:
        raise SettingsError("the first one")
    time.sleep(0.02)
    return item.number


def die_once(item: Begun) -> int:
    """Return how often the item has run. The first run of item 1 ends its process."""
    runs = _count(item)
    if item.number == 1 and runs == 1:
        os._exit(9)
    return runs


def die_always(item: Begun) -> int:
    """Return the item's number; every run of item 1 ends its process."""
    _count(item)
    if item.number == 1:
        os._exit(9)
    return item.number


def _count(item: Begun) -> int:
    path = item.folder / f"runs-{item.number}"
    with open(path, "a", encoding="utf-8") as stream:
        stream.write("x")
    return path.stat().st_size


def give_a_lock(item: object) -> object:
    """Return an object that cannot be pickled."""
    return threading.Lock()


def scaled(item: Arrays) -> NDArray[np.float64]:
    """Return an array as large as the item's own array, computed from both arrays of the item."""
    result: NDArray[np.float64] = item.own * item.number + item.shared[: len(item.own)]
    return result


def nested(name: str, item: int) -> list[int]:
    """Make an executor called `name` inside this work, and return squares that it computes."""
    from rlsdk.executors import make_executor

    inner = make_executor(name, 1)
    try:
        return inner.map(square, [item, item + 1])
    finally:
        inner.close()


def arrays(count: int, size: int) -> Sequence[Arrays]:
    """Return `count` items, each with its own array of `size` random numbers, and one array shared by all."""
    generator = np.random.default_rng(0)
    shared = generator.random(size)
    return [Arrays(i, generator.random(size), shared) for i in range(count)]


def error_of(run: object) -> RlsdkError | None:
    """Call `run`, and return the `RlsdkError` that it raises; None if it raises none."""
    try:
        run()  # type: ignore[operator]
    except RlsdkError as error:
        return error
    return None
