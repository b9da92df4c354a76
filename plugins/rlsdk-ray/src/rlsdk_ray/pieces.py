"""The functions and the actor class that run in the processes of Ray."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import ray

from rlsdk.errors import WorkError
from rlsdk_parallel import attempt
from rlsdk_ray.nodes import Surroundings

Reference: TypeAlias = "ray.ObjectRef[Any]"
"""A reference to an object in the object store of Ray. Its type is not known."""
_latest: tuple[str, object] = ("", None)
"""The latest work in a process of Ray: (its reference as hexadecimal text, the work itself)."""


@ray.remote(max_retries=0)
def piece(surroundings: Surroundings, work: list[Reference], item: object) -> object:
    """Run `work` on `item`. Returns what `attempt` does: the result, or the exception as a value.

    `work` is a list with one reference, because Ray would fetch a reference that is not in a list before the call.
    """
    return attempt(partial(_done, surroundings, work[0]), item)


def _done(surroundings: Surroundings, work: Reference, item: object) -> object:
    surroundings.enter()
    return _unpacked(work)(item)


@ray.remote(max_retries=0, num_cpus=0)
def check(surroundings: Surroundings) -> object:
    """Check whether this node can do work. Returns None, or the error as `attempt` returns it."""
    return attempt(Surroundings.enter, surroundings)


def _unpacked(reference: Reference) -> Any:
    global _latest  # noqa: PLW0603  # a process runs many items of the same work, which is unpickled once
    if _latest[0] != reference.hex():
        _latest = reference.hex(), unpickled("the work", lambda: ray.get(reference))
    return _latest[1]


def unpickled(what: str, fetch: Callable[[], Any]) -> Any:
    """Call `fetch` and return its result.

    Raises:
        WorkError: this node cannot unpickle the result, for example because a module is missing.
    """
    try:
        return fetch()
    except ray.exceptions.RaySystemError as error:
        last = str(error).strip().splitlines()[-1]
        raise WorkError(f"{what} cannot be unpacked on node {socket.gethostname()}: {last}") from error


class Holder:
    """The class of an actor: it holds a function with state in a separate process."""

    def __init__(self, surroundings: Surroundings, make: list[Reference]) -> None:
        self._surroundings, self._make = surroundings, make[0]
        self._function: Callable[[Any], object] | None = None

    def answer(self, request: object) -> object:
        """Call the function with `request`. Returns what `attempt` does: the result, or the exception as a value."""
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
        """Call `close` of the function, if it has this method."""
        close = getattr(self._function, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                close()


def cause_of(error: BaseException) -> str:
    """The type and the first line of an error of Ray, whose message may have many lines."""
    inner = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    return f"{type(inner).__name__}: {lines[0] if lines else ''}"
