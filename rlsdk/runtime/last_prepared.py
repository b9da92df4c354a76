"""Finds again what was prepared for given objects, without holding any memory."""

from __future__ import annotations

from typing import Generic, TypeVar, cast
from weakref import ref

ResultsT = TypeVar("ResultsT", bound="tuple[object, ...]")


class LastPrepared(Generic[ResultsT]):
    """The results that were last prepared for some objects, as long as somebody else holds the results.

    The results must hold these objects. Usually a function is prepared that knows the addresses of a rollout's storage, and the
    next rollout in the same storage calls it too. This object does not hold the storage.
    """

    def __init__(self) -> None:
        self._ids: tuple[int, ...] = ()
        self._results: tuple[ref[object], ...] = ()

    def find(self, *given: object) -> ResultsT | None:
        """Return the results that were prepared for these very objects; None if they must be prepared."""
        # results hold their objects, so while they exist no other objects can have these ids
        if self._ids != tuple(map(id, given)):
            return None
        results = tuple([result() for result in self._results])
        return None if any(result is None for result in results) else cast("ResultsT", results)

    def remember(self, results: ResultsT, *given: object) -> ResultsT:
        """Remember the results that were prepared for `given`, and return them."""
        self._ids, self._results = tuple(map(id, given)), tuple(map(ref, results))
        return results

    def __reduce__(self) -> tuple[type[LastPrepared[ResultsT]], tuple[()]]:
        return LastPrepared, ()  # a copy prepares its own results
