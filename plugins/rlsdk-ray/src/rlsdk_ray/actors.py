"""Stateful workers, each of which is an actor of Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import exceptions

from rlsdk_parallel import WorkerDied, result_of
from rlsdk_ray.nodes import Surroundings
from rlsdk_ray.pieces import Holder, Reference, cause_of
from rlsdk_ray.resources import Resources
from rlsdk_ray.sending import not_fetched, sending
from rlsdk_ray.shared_parts import with_shared_parts

LOOK, FETCH, ENDING = 1.0, 120.0, 3.0
"""Seconds between two checks for answers, to fetch a finished answer, and to wait until a worker closed its function."""
DEAD = (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.OutOfMemoryError, exceptions.GetTimeoutError)


class RayWorkers:
    """Workers that are actors of Ray, spread over the nodes. They end with the program, even if it is killed."""

    def __init__(self, makers: Sequence[Callable[[], Callable[[Any], object]]], resources: Resources) -> None:
        self._kind = ray.remote(Holder).options(
            **resources.options(), max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._surroundings = Surroundings.here()
        with sending("what makes a worker"):
            self._makers = [[ray.put(make)] for make in makers]
        self._actors = [self._started(index) for index in range(len(makers))]

    @property
    def pids(self) -> list[int | None]:
        """The process id of each worker on its node."""
        return [ray.get(actor.pid.remote(), timeout=FETCH) for actor in self._actors]

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        """See `rlsdk_parallel.StatefulWorkers`; arrays in answers may be read-only."""
        waiting: dict[Reference, int] = {}
        with sending("a request"):
            for index, request in zip(requests, with_shared_parts(list(requests.values())), strict=True):
                waiting[self._actors[index].answer.remote(request)] = index
        answers: dict[int, object] = {}
        while waiting:
            for reference in ray.wait(list(waiting), num_returns=1, timeout=LOOK)[0]:
                index = waiting.pop(reference)
                answers[index] = _answer(index, reference)
        return {index: result_of(answers[index]) for index in requests}

    def replace(self, index: int) -> None:
        ray.kill(self._actors[index])
        self._actors[index] = self._started(index)

    def close(self) -> None:
        """Let every worker close its function, for a few seconds at most, and end all workers."""
        with contextlib.suppress(exceptions.RayError):
            ray.wait([a.end.remote() for a in self._actors], num_returns=max(1, len(self._actors)), timeout=ENDING)
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def _started(self, index: int) -> Any:
        return self._kind.remote(self._surroundings, self._makers[index])


def _answer(index: int, reference: Reference) -> object:
    """The answer of a worker, or `WorkerDied`."""
    try:
        return ray.get(reference, timeout=FETCH)
    except DEAD as error:
        return WorkerDied(f"died ({cause_of(error)})")
    except exceptions.RayError as error:
        raise not_fetched(index, error) from error
