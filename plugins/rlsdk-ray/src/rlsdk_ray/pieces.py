"""What runs in the processes of Ray."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import ray

from rlsdk.errors import WorkError
from rlsdk.executors import attempt
from rlsdk_ray.nodes import Surroundings

Reference: TypeAlias = "ray.ObjectRef[Any]"
"""Of an object in the store of Ray, which has no types."""
_latest: tuple[str, object] = ("", None)
"""In a process of Ray: (the reference of the latest work, the work)."""


@ray.remote(max_retries=0)
def piece(surroundings: Surroundings, work: list[Reference], item: object) -> object:
    """The answer of `attempt`: what the work returned, or what it raised. In a list, a reference is not fetched early."""
    return attempt(partial(_done, surroundings, work[0]), item)


def _done(surroundings: Surroundings, work: Reference, item: object) -> object:
    surroundings.enter()
    return _unpacked(work)(item)


@ray.remote(max_retries=0, num_cpus=0)
def check(surroundings: Surroundings) -> object:
    """Whether this node can do work: None, or what is wrong."""
    return attempt(Surroundings.enter, surroundings)


def _unpacked(reference: Reference) -> Any:
    global _latest  # noqa: PLW0603  # a process does many items of the same work, which is unpickled once
    if _latest[0] != reference.hex():
        _latest = reference.hex(), unpickled("the work", lambda: ray.get(reference))
    return _latest[1]


def unpickled(what: str, fetch: Callable[[], Any]) -> Any:
    """What `fetch` returns.

    Raises:
        WorkError: this node cannot unpickle it, as where a module is missing.
    """
    try:
        return fetch()
    except ray.exceptions.RaySystemError as error:
        last = str(error).strip().splitlines()[-1]
        raise WorkError(f"{what} cannot be unpacked on node {socket.gethostname()}: {last}") from error


class Holder:
    """A function with state in a separate process: the class of an actor."""

    def __init__(self, surroundings: Surroundings, make: list[Reference]) -> None:
        self._surroundings, self._make = surroundings, make[0]
        self._function: Callable[[Any], object] | None = None

    def answer(self, request: object) -> object:
        """The answer of `attempt`."""
        return attempt(self._answered, request)

    def _answered(self, request: object) -> object:
        if self._function is None:
            self._surroundings.enter()
            self._function = unpickled("the maker", lambda: ray.get(self._make))()
        return self._function(request)

    def pid(self) -> int:
        """The id of this process on its node."""
        return os.getpid()

    def end(self) -> None:
        """Call `close` of the function, where it has one."""
        close = getattr(self._function, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                close()


def cause_of(error: BaseException) -> str:
    """One line of an error of Ray, which may have many."""
    inner = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    return f"{type(inner).__name__}: {lines[0] if lines else ''}"
