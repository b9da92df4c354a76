"""The executor that runs independent pieces of work as tasks of Ray."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import ray
from ray import exceptions

from rlsdk.errors import SettingsError, UsageError, WorkError
from rlsdk_parallel import result_of
from rlsdk_ray.actors import RayWorkers
from rlsdk_ray.connection import enter, leave, nodes, total
from rlsdk_ray.nodes import Surroundings
from rlsdk_ray.pieces import Reference, cause_of, check, piece
from rlsdk_ray.resources import Resources
from rlsdk_ray.sending import not_fetched, sending, smallest_store
from rlsdk_ray.shared_parts import warn_of_size, with_shared_parts

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
LOST = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.GetTimeoutError,
)
"""The errors that Ray raises if a process or a node died with an item or its result."""
ATTEMPTS = 3
LOOK = 1.0
"""Seconds between two checks whether the executor was closed."""
FETCH = 120.0
"""Seconds to fetch a finished result."""


class RayExecutor:
    """Runs pieces of work on Ray: one that this process is connected to, one at an address, or one that it starts.

    Args:
        workers: the largest number of pieces that run at the same time.
        address: `host:port` of the head of a Ray, or `auto` for the one on this machine; None: the address in RAY_ADDRESS,
            else this process starts a Ray on this machine.
        resources: what Ray reserves for one piece; the default `Resources()` is one CPU.

    Raises:
        SettingsError: `workers` is below 1, no Ray answers at the address, or no piece fits into the cluster.
        PluginError: a node has other versions of rlsdk or its plugins.
    """

    def __init__(self, workers: int, *, address: str | None = None, resources: Resources | None = None) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise SettingsError(f"{workers!r} workers can do nothing; give a whole number, 1 or more")
        self.workers, self.resources = workers, resources or Resources()
        self.repeated = 0
        """How many items were repeated because a process or a node died."""
        self._closed = threading.Event()
        self._checked = set[str]()
        self._threads: ThreadPoolExecutor | None = None
        enter(address)
        try:
            self._require_room()
            self._require_same_versions()
        except BaseException:
            leave()
            raise

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        self._require_open()
        self._require_same_versions()
        job = _Job(self, work, items)
        try:
            return job.results()
        except KeyboardInterrupt:
            job.stop()
            raise
        finally:
            job.cancel()

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        self._require_open()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="rlsdk-ray")
        return self._threads.submit(lambda: self.map(work, [item])[0])

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> RayWorkers:
        """See `rlsdk_parallel.HasStatefulWorkers`; each worker is an actor of Ray.

        Raises:
            SettingsError: the cluster has too few resources for that number of workers.
        """
        self._require_open()
        room = self.resources.fit(total(), len(makers))
        if room < len(makers):
            raise SettingsError(
                f"{len(makers)} collectors need {len(makers) * self.resources.num_cpus:g} CPUs, the Ray has"
                f" {total().get('CPU', 0.0):g}; choose {room or 1} collectors or fewer, add nodes, or state"
                f" more for this machine: ray start --head --num-cpus {len(makers)}, then RAY_ADDRESS=auto"
            )
        return RayWorkers(makers, self.resources)

    def close(self) -> None:
        """Cancel running work and disconnect. A Ray that was started for this executor ends; an existing one continues."""
        if not self._closed.is_set():
            self._closed.set()
            if self._threads is not None:
                self._threads.shutdown(wait=True, cancel_futures=True)
            leave()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def in_flight(self) -> int:
        """How many items are submitted to Ray at the same time: twice the number that can run where Ray limits it, else
        `workers`."""
        room = max(1, self.resources.fit(total(), self.workers + 1))
        return 2 * room if room <= self.workers else self.workers

    def _require_open(self) -> None:
        if self.closed:
            raise UsageError("the executor is closed; make another one")

    def _require_room(self) -> None:
        there = total()
        if not self.resources.fit(there, 1):
            raise SettingsError(
                f"a piece of work needs {self.resources.wanted()}, the whole Ray has"
                f" { ({name: there.get(name, 0.0) for name in self.resources.wanted()}) }; ask for less, or add nodes"
            )

    def _require_same_versions(self) -> None:
        """Raise PluginError if a node that was not checked before has other versions than this process."""
        new = [node for node in nodes() if node["NodeID"] not in self._checked]
        if not new:
            return
        here = Surroundings.here()
        asked = [check.options(label_selector={"ray.io/node-id": node["NodeID"]}).remote(here) for node in new]
        for node, reference in zip(new, asked, strict=True):
            try:
                result_of(ray.get(reference, timeout=FETCH))
            except exceptions.RayError:
                continue  # the node ended or is slow; each piece checks the versions too
            self._checked.add(node["NodeID"])


class _Job:
    """One call of `map`: the items that wait, the items submitted to Ray, and the results."""

    def __init__(self, executor: RayExecutor, work: object, items: Sequence[object]) -> None:
        self.executor, self.count = executor, len(items)
        self.waiting, self.tried = list(range(len(items)))[::-1], Counter[int]()
        self.running: dict[Reference, int] = {}
        self._task = piece.options(**executor.resources.options(), max_retries=0)
        self._surroundings, self._most = Surroundings.here(), executor.in_flight()
        store = smallest_store()
        for item in items:
            warn_of_size(item, store)
        with sending("the work or an item"):
            self._work = [ray.put(work)]
            self.items = with_shared_parts(items)

    def results(self) -> list[Any]:
        """Return the results in the order of the items, or raise the first exception."""
        answers: dict[int, object] = {}
        while self.waiting or self.running:
            if self.executor.closed:
                raise WorkError("the executor was closed")
            while self.waiting and len(self.running) < self._most:
                self._send(self.waiting.pop())
            ready, _ = ray.wait(list(self.running), num_returns=1, timeout=LOOK)
            for reference in ready:
                index = self.running.pop(reference)
                try:
                    answers[index] = result_of(copy.deepcopy(ray.get(reference, timeout=FETCH)))
                except LOST as error:
                    self._again(index, error)
                except exceptions.RayError as error:
                    raise not_fetched(index, error) from error
        return [answers[index] for index in range(self.count)]

    def _send(self, index: int) -> None:
        with sending(f"item {index}"):
            self.running[self._task.remote(self._surroundings, self._work, self.items[index])] = index

    def _again(self, index: int, error: Exception) -> None:
        self.tried[index] += 1
        if self.tried[index] >= ATTEMPTS:
            raise WorkError(
                f"item {index} was started {ATTEMPTS} times and its process or node died each time: {cause_of(error)}"
            )
        self.executor.repeated += 1
        self.waiting.append(index)

    def cancel(self) -> None:
        """Cancel the submitted items. Those that run receive a KeyboardInterrupt."""
        for reference in self.running:
            ray.cancel(reference)

    def stop(self) -> None:
        """Cancel, and wait until all items have ended, so that runs can save. A second Ctrl-C kills the processes."""
        try:
            self.cancel()
            while self.running:
                for reference in ray.wait(list(self.running), num_returns=1, timeout=LOOK)[0]:
                    del self.running[reference]
        except KeyboardInterrupt:
            for reference in self.running:
                ray.cancel(reference, force=True)
            self.running = {}
            raise
