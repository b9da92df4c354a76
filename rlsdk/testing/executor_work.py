"""Pieces of work that the contract of executors gives away; a module holds them, so that every process can import them."""

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
    """An error whose constructor takes more than its message, as those of many packages do."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"code {code}: {reason}")


@attrs.frozen
class Arrays:
    """An item with an array of its own and one that it shares with others."""

    number: int
    own: NDArray[np.float64]
    shared: NDArray[np.float64]


@attrs.frozen
class Begun:
    """An item that leaves a file where it begins."""

    folder: Path
    number: int


def square(item: int) -> int:
    """A small piece; the first of them take longest, so that they end in another order."""
    time.sleep(max(0.0, 0.02 - 0.002 * item))
    return item * item


def process_of(item: object) -> int:
    """Where it runs."""
    return os.getpid()


def fail(kind: str) -> None:
    """Raise an error of that kind."""
    somewhere_deep(kind)


def somewhere_deep(kind: str) -> None:
    """The function that must appear in the trace."""
    errors: dict[str, Exception] = {
        "SettingsError": SettingsError("a setting"),
        "ValueError": ValueError("a value", 3),
        "KeyError": KeyError("a key"),
        "TwoPartError": TwoPartError(7, "a reason"),
    }
    raise errors[kind]


def begin(item: Begun) -> int:
    """Leave a file; so slow that later items wait."""
    (item.folder / str(item.number)).touch()
    time.sleep(0.05)
    return item.number


def begin_then_fail(item: Begun) -> int:
    """Leave a file; the first item fails."""
    (item.folder / str(item.number)).touch()
    if item.number == 0:
        raise SettingsError("the first one")
    time.sleep(0.02)
    return item.number


def die_once(item: Begun) -> int:
    """End the process where item 1 runs for the first time; the number of times it ran."""
    runs = _count(item)
    if item.number == 1 and runs == 1:
        os._exit(9)
    return runs


def die_always(item: Begun) -> int:
    """End the process of item 1."""
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
    """A result that cannot be pickled."""
    return threading.Lock()


def scaled(item: Arrays) -> NDArray[np.float64]:
    """As large as the item."""
    result: NDArray[np.float64] = item.own * item.number + item.shared[: len(item.own)]
    return result


def nested(name: str, item: int) -> list[int]:
    """Work that maps on an executor of its own."""
    from rlsdk.executors import make_executor

    inner = make_executor(name, 1)
    try:
        return inner.map(square, [item, item + 1])
    finally:
        inner.close()


def arrays(count: int, size: int) -> Sequence[Arrays]:
    """Items with `size` numbers of their own."""
    generator = np.random.default_rng(0)
    shared = generator.random(size)
    return [Arrays(i, generator.random(size), shared) for i in range(count)]


def error_of(run: object) -> RlsdkError | None:
    """What calling `run` raises of ours."""
    try:
        run()  # type: ignore[operator]
    except RlsdkError as error:
        return error
    return None
