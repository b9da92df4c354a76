"""A vector environment whose environments are in several collectors. Each collector acts with a copy of the policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rlsdk.environments.adapters.checks import Environment
from rlsdk.environments.states import OpaqueValue, state_of
from rlsdk.environments.vector.connected import SteppedVector
from rlsdk.environments.vector.process_vector import InWorkers
from rlsdk.environments.vector.stepping import ResultT
from rlsdk.environments.vector.worker import ByValue, MakesAttached, PackedRequest, Request, numbers_in
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk.executors.choice import SerialExecutor, done_now
from rlsdk.executors.processes import Background
from rlsdk.executors.shared_memory import Packed
from rlsdk.executors.workers import WorkerDied
from rlsdk.interfaces import Executor, HasStatefulWorkers
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Observation
from rlsdk.spaces import Space

Places = Sequence[Packed | None]
"""The state of the environments of each collector; None: unknown."""


class CollectorsVectorEnv(InWorkers, SteppedVector):
    """B environments, distributed evenly over several stateful workers, the collectors.

    `collect` makes all collectors collect a rollout at the same time. A worker that dies is replaced: its environments continue
    from their last known state, and its request is repeated. `restarts` is the number of replaced workers. A worker that dies
    during `step` raises EnvironmentFault instead.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Environment]],
        spaces: tuple[Space, Space],
        collectors: int,
        executor: Executor,
        *,
        name: str,
        seed: int | None = None,
    ) -> None:
        """Raises SettingsError when the executor has no stateful workers."""
        super().__init__(*spaces, name, seed)
        if (able := ability(executor, HasStatefulWorkers, "stateful_workers")) is None:
            raise SettingsError(
                f"executor {type(executor).__name__} has no workers that hold environments"
                " (rlsdk.interfaces.HasStatefulWorkers), so it has no collectors; use 'processes', or leave them out"
            )
        self.collectors = collectors
        # work in this process would not run beside the learner, but only switch between two threads
        self._background = None if isinstance(executor, SerialExecutor) else Background()
        self.standing: Places | None = None
        """The states that the learner has processed, while collectors are ahead of it; None: the collectors' states."""
        self._attached: ByValue[MakesAttached] | None = None
        self._fingerprints: dict[int, Hashable] = {}
        self._replaced: dict[int, tuple[Hashable, Hashable]] = {}
        """Collector -> (fingerprint of a new worker in the state of the old one, fingerprint of the old one)."""
        # without shared memory: the workers of an executor may be on other machines
        parts = self._assign(makers, spaces, collectors, None)
        self._executor, self._workers = executor, able.stateful_workers(parts)
        self._require_masks_alike()

    # --- collecting --------------------------------------------------------------------------------------------------

    def attach(self, make: MakesAttached) -> None:
        """Make every collector call `make` with its environments. `collect` then calls the resulting function."""
        self._attached = ByValue(make)
        self._ask("attach", [(self._attached,)] * self.collectors)

    def collect(self, shared: object, own: Sequence[object]) -> list[Any]:
        """Collect in all collectors, and return their results in order.

        Args:
            shared: data for the attached functions of all collectors.
            own: data for each collector.
        """
        # packed once: all requests refer to the same array, which shared memory holds once
        common = Packed.of(shared)
        requests = {i: self._packed_request("collect", common, Packed.of(part)) for i, part in enumerate(own)}
        return [answer.value() for answer in self._exchange(requests).values()]

    # --- ahead of the learner ----------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[Packed | None, ...]:
        """The state of the environments of each collector; None: unknown."""
        return tuple(self._states)

    def begin(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Run `work()`, a function that collects, in the background. Other requests wait until it is done.

        If the environments are in this process, it runs immediately instead.
        """
        return done_now(lambda _: work(), None) if self._background is None else self._background.submit(work)

    def rewind(self) -> bool:
        """Restore the states in `standing`, so that no environment is ahead of the learner.

        Returns:
            False if a state is unknown or the environments are closed, else True.
        """
        standing, self.standing = self.standing, None
        if standing is None or self._closed:
            return standing is None
        known = [state for state in standing if state is not None]
        if len(known) < len(standing):
            return False
        self._exchange({i: self._packed_request("set_state", state) for i, state in enumerate(known)})
        return True

    def get_state(self) -> dict[str, object]:
        """The state of the environments that the learner has processed. Raises as `EnvironmentGroup.get_state`."""
        if self.standing is None:
            return super().get_state()
        known = [state for state in self.standing if state is not None]
        if len(known) < len(self.standing):
            raise OpaqueValue(f"the state of {self.name!r} cannot be read")
        found: list[Any] = [state.value() for state in known]
        return state_of([state for states, _ in found for state in states], all(masks for _, masks in found))

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`. Raises as `EnvironmentGroup.set_state`."""
        super().set_state(state)
        self.standing = None

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        observation = super().reset(seed)
        self.standing = None
        return observation

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset, but not when a worker is replaced."""
        if self._closed:
            return None
        for index, found in enumerate(self._ask_all("fingerprint")):
            new, old = self._replaced.get(index, (None, None))
            self._fingerprints[index] = old if found == new and new is not None else found
        return tuple(self._fingerprints[index] for index in range(self.collectors))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _exchange(self, requests: Mapping[int, Request | PackedRequest]) -> dict[int, Any]:
        if self._background is not None:
            self._background.settle()  # a worker answers one request at a time, in the order of the pipe
        try:
            return super()._exchange(requests)
        except Exception as error:
            if self._closed:  # another thread closed it while this one waited for the workers
                raise EnvironmentFault(f"environment {self.name!r} is closed") from error
            raise

    def _again(self, index: int, request: Request | PackedRequest, death: WorkerDied) -> Any:
        where = f"environment {self.name!r}: the collector of {numbers_in(self.rows[index])}"
        if request.name == "step":  # its actions were chosen for observations that new episodes would not have
            raise EnvironmentFault(f"{where} {death}, in the middle of an episode")
        if self._closed:  # `close` ended the workers while they collected in the background
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        if self._deaths[index]:
            raise EnvironmentFault(f"{where} died twice in the same piece of work; the second time it {death}")
        self._deaths[index] += 1
        try:
            return super()._again(index, request, death)
        finally:
            del self._deaths[index]

    def _restore(self, index: int) -> None:
        """Restore the last known state in a new worker, or begin new episodes if it is unknown."""
        state = self._states[index]
        if self._attached is not None:
            self._exchange({index: self._request("attach", self._attached)})
        if state is None:
            return super()._restore(index)
        self._exchange({index: self._packed_request("set_state", state)})
        if index in self._fingerprints:
            # the new fingerprint stands for the old one: `learn` must not take this for a step that other code made
            (new,) = self._exchange({index: self._request("fingerprint")}).values()
            self._replaced[index] = new, self._fingerprints[index]
        return None

    def close(self) -> None:
        """Close the environments and end the workers."""
        if not self._closed:
            self._closed = True
            self._workers.close()
            self._executor.close()
            if self._background is not None:
                self._background.close()
