"""A vector environment whose environments are in several collectors. Each collector acts with a copy of the policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain
from typing import Any, NoReturn, TypeAlias, TypeVar

import attrs
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import Environment
from rlsdk.environments.states import OpaqueValue, state_of
from rlsdk.environments.vector.connected import Seeds, SteppedVector, seed_of
from rlsdk.environments.vector.process_vector import SpreadRequests, even_ranges
from rlsdk.environments.vector.stepping import ItemT, ResultT, Work
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.environments.vector.worker import REQUESTS, ByValue, numbers_in, sendable
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError
from rlsdk.executors.choice import SerialExecutor, done_now
from rlsdk.executors.processes import Background
from rlsdk.executors.shared_memory import Packed
from rlsdk.executors.workers import WorkerDied
from rlsdk.interfaces import Executor, HasStatefulWorkers, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.records import EnvStep, Features, Observation
from rlsdk.runtime.process import derive, fresh_seed
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors

NodeT = TypeVar("NodeT")


Places = Sequence[Packed | None]
"""The state of the environments of each collector; None: unknown."""


class CollectorsVectorEnv(SpreadRequests, SteppedVector):
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
        self.num_envs, self.collectors, self.has_masks, self._closed = len(makers), collectors, False, False
        self.rows = even_ranges(len(makers), collectors)
        self._background = None if isinstance(executor, SerialExecutor) else Background()
        self.standing: Places | None = None
        """The states that the learner has processed, while collectors are ahead of it; None: the collectors' states."""
        self._base = 0
        """The seed of the last reset. Seeds for replaced workers are derived from it."""
        self._attached: ByValue[MakesAttached] | None = None
        self._states: list[Packed | None] = [None] * collectors
        """The state of the environments of each collector; None: unknown."""
        self._fingerprints: dict[int, Hashable] = {}
        self._replaced: dict[int, tuple[Hashable, Hashable]] = {}
        """Collector -> (fingerprint of a new worker in the state of the old one, fingerprint of the old one)."""
        own = [ByValue([makers[i] for i in rows]) for rows in self.rows]
        seats = [Seats(o, spaces, name, r, len(makers)) for o, r in zip(own, self.rows, strict=True)]
        self._executor, self._workers = executor, able.stateful_workers(seats)
        self.has_masks = all(self._ask_all("has_masks"))

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
        common = Packed.of(shared)
        parts = [Packed.of(part) for part in own]
        requests = [self._request("collect", (common.nest, p.nest), common, p) for p in parts]
        return [answer.value() for answer in self._exchange(requests)]

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
        self._exchange([self._request("set_state", (state.nest,), own=state) for state in known])
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

    # --- stepping ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        pending = self.seeds.first_pending()
        chosen = pending if seed is None else seed
        self._base = fresh_seed() if chosen is None else chosen
        self.reset_seeds = () if chosen is None else [seed_of(chosen, i) for i in range(self.num_envs)]
        options = self.reset_options.take()
        requests = [(chosen, options[rows.start : rows.stop]) for rows in self.rows]
        answers = [answer.value() for answer in self._ask("reset", requests)]
        self.standing = None
        self.has_masks = all(masks for _, masks in answers)
        observations: list[Observation] = [observation for observation, _ in answers]
        return _joined(observations)

    def step(self, action: Features) -> EnvStep:
        """Step the environments inside their collectors with the given actions. The copies of the policy are not used."""
        parts = [Packed.of(map_tensors(lambda leaf, at=at: leaf[at.start : at.stop], action)) for at in self.rows]
        answers = self._exchange([self._request("step", (part.nest,), own=part) for part in parts])
        return _joined_steps([answer.value() for answer in answers], self.rows)

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset, but not when a worker is replaced."""
        if self._closed:
            return None
        for index, found in enumerate(self._ask_all("fingerprint")):
            new, old = self._replaced.get(index, (None, None))
            self._fingerprints[index] = old if found == new and new is not None else found
        return tuple(self._fingerprints[index] for index in range(self.collectors))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _request(
        self, name: str, arguments: tuple[object, ...], shared: Packed | None = None, own: Packed | None = None
    ) -> Request:
        arrays = {n: p.data for n, p in (("shared", shared), ("own", own)) if p is not None}
        return Request(name, arguments, **arrays, infos=self.keeps_infos, info_names=self.info_names)

    def _ask(self, request: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        return self._exchange([self._request(request, own) for own in arguments])

    def _exchange(self, requests: Sequence[Request]) -> list[Any]:
        """Send each collector its request, and return the answers in order."""
        if self._closed:
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        if self._background is not None:
            self._background.settle()  # a worker answers one request at a time, in the order of the pipe
        try:
            answers = self._workers.ask(dict(enumerate(requests)))
        except Exception as error:
            if self._closed:  # another thread closed it while this one waited for the workers
                raise EnvironmentFault(f"environment {self.name!r} is closed") from error
            raise
        for index, request in enumerate(requests):
            if isinstance(answers[index], WorkerDied):
                answers[index] = self._again(index, request, answers[index])
            self._note(index, request, answers[index])
        return [answers[index].value for index in range(len(requests))]

    def _note(self, index: int, request: Request, answer: Answer) -> None:
        if answer.state is not None or request.name in ("step", "reset", "collect"):
            self._states[index] = answer.state

    def _again(self, index: int, request: Request, death: WorkerDied) -> Answer:
        """Replace a worker that died, and return the answer of the new worker to the same request."""
        where = f"environment {self.name!r}: the collector of {numbers_in(self.rows[index])}"
        if request.name == "step":  # its actions were chosen for observations that new episodes would not have
            raise EnvironmentFault(f"{where} {death}, in the middle of an episode")
        if self._closed:  # `close` ended the workers while they collected in the background
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        self.restarts += 1
        self._workers.replace(index)
        # the state comes back before the fingerprint is read: then the new fingerprint stands for the old one, and
        # `learn` does not take the replacement for a step that other code made
        known = self._states[index] is not None and index in self._fingerprints
        for repeated in (*self._restoring(index), *[self._request("fingerprint", ())] * known, request):
            answer = self._workers.ask({index: repeated})[index]
            if isinstance(answer, WorkerDied):
                raise EnvironmentFault(f"{where} died twice in the same piece of work; the second time it {answer}")
            if known and repeated.name == "fingerprint":
                self._replaced[index] = answer.value, self._fingerprints[index]
        found: Answer = answer
        return found

    def _restoring(self, index: int) -> list[Request]:
        """The requests that restore the last known state in a new worker, or begin new episodes if it is unknown."""
        state, requests = self._states[index], list[Request]()
        if state is not None:
            requests.append(self._request("set_state", (state.nest,), own=state))
        else:
            requests.append(self._request("begin", (derive(self._base, "lost environments", self.restarts) % 2**31,)))
        if self._attached is not None:
            requests.insert(0, self._request("attach", (self._attached,)))
        return requests

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> NoReturn:
        """Raises UsageError, because collectors cannot play whole episodes for population methods."""
        raise UsageError(
            f"environment {self.name!r} is in collectors, which play no whole episodes; population methods play them with"
            " make_vec_env(..., vectorization='async') or the name of an executor"
        )

    def close(self) -> None:
        """Close the environments and end the workers."""
        if not self._closed:
            self._closed = True
            self._workers.close()
            self._executor.close()
            if self._background is not None:
                self._background.close()


def _joined(parts: Sequence[NodeT]) -> NodeT:
    """Concatenate the records of all collectors along the environments, to [B, ..] per leaf."""
    return map_tensors(lambda *leaves: torch.cat(leaves), *parts)


def _joined_steps(steps: Sequence[EnvStep], places: Sequence[range]) -> EnvStep:
    """Concatenate the steps of all collectors to one step. Episodes are in the order of their environments."""
    finals = [step.final_observation for step in steps if step.final_observation is not None]
    flags = _joined([(step.reward, step.terminated, step.truncated, step.valid) for step in steps])
    episodes = tuple(
        replace(episode, env=episode.env + rows.start)
        for step, rows in zip(steps, places, strict=True)
        for episode in step.episodes
    )
    infos = None if steps[0].infos is None else list(chain.from_iterable(step.infos or () for step in steps))
    return EnvStep(
        _joined([step.observation for step in steps]),
        *flags,
        _joined(finals) if finals else None,
        episodes,
        infos,
        info=_joined([step.info for step in steps]),
    )


Bytes: TypeAlias = NDArray[np.uint8]
NOTHING: Bytes = np.zeros(0, np.uint8)
MOVING = frozenset({"reset", "begin", "set", "call", "set_state", "attach", "collect"})
"""Requests that change the environments. The answer contains their new state, for a new worker in case this one dies."""


Attached: TypeAlias = Callable[[Any, Any, Observation | None], object]
"""A function (shared, own, fresh) -> a rollout in the environments of one collector, with the data that the next one needs.

`shared` is the same for all collectors, `own` is data of this collector. `fresh` is None, or the first observation of new
episodes, if the worker was replaced and its episodes are lost.
"""
MakesAttached: TypeAlias = Callable[[VectorEnv], Attached]


@attrs.frozen(eq=False)
class Request:
    """A request to a collector. Its arrays are sent through shared memory."""

    name: str
    arguments: tuple[object, ...] = ()
    shared: Bytes = NOTHING
    own: Bytes = NOTHING
    infos: bool = False
    info_names: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Answer:
    """The answer to a request, and the state of the environments after it; None if it is unknown or cannot be read."""

    value: Any
    state: Packed | None = None


@attrs.frozen
class Seats:
    """The environments of one collector: the numbers `rows` of `total` environments. A call makes the collector."""

    makers: ByValue[list[Callable[[], Environment]]]
    spaces: tuple[Space, Space]
    name: str
    rows: range
    total: int

    def __call__(self) -> CollectorWorker:
        return CollectorWorker(self)


class CollectorWorker:
    """The environments of one collector, and the function that collects in them. A call answers a request."""

    def __init__(self, seats: Seats) -> None:
        numbers = seats.rows if seats.total > 1 else ()
        environments = [make() for make in seats.makers()]
        self.env = SyncVectorEnv(environments, *seats.spaces, name=seats.name, numbers=numbers)
        self.env.seeds = Seeds(offset=seats.rows.start)
        self._attached: Attached | None = None
        self._fresh: Observation | None = None
        self._infos = (False, tuple[str, ...]())

    def __call__(self, request: Request) -> Answer:
        env = self.env
        if (wanted := (request.infos, request.info_names)) != self._infos:
            env.keep_infos(request.infos)
            env.select_info(request.info_names)
            self._infos = wanted
        if request.name in OWN:
            value = getattr(self, request.name)(request)
        else:
            value = REQUESTS[request.name](env.group, *request.arguments)
        return Answer(value, self._state() if request.name in MOVING else None)

    def _state(self) -> Packed | None:
        try:
            return Packed.of((self.env.group.get_state(), self.env.has_masks))
        except OpaqueValue:
            return None

    def reset(self, request: Request) -> Packed:
        """Reset the environments. The request's arguments: the seed of all collectors, and the options of each environment."""
        seed, options = request.arguments
        assert seed is None or isinstance(seed, int)
        self.env.set_options(options or None)
        return Packed.of((self.env.reset(seed), self.env.has_masks))

    def begin(self, request: Request) -> None:
        """Begin new episodes instead of those that a dead worker lost. The next rollout starts with them.

        The argument of the request is a seed.
        """
        (seed,) = request.arguments
        assert isinstance(seed, int)
        self._fresh = self.env.reset(seed)

    def step(self, request: Request) -> Packed:
        """Step the environments. The argument of the request is the nesting of the actions."""
        step = self.env.step(Packed(request.arguments[0], request.own).value())
        infos = step.infos and [sendable(self.env.name, dict(info)) for info in step.infos]
        return Packed.of(replace(step, infos=infos))

    def attach(self, request: Request) -> None:
        """Make the function that collects.

        The request's argument is a function, pickled by value, that takes the vector environment and returns an `Attached`.
        """
        make: Any = request.arguments[0]
        self._attached = make()(self.env)

    def collect(self, request: Request) -> Packed:
        """Collect a rollout. The arguments of the request are the nestings of the shared and of the own data."""
        assert self._attached is not None
        shared, own = request.arguments
        fresh, self._fresh = self._fresh, None
        return Packed.of(
            self._attached(Packed(shared, request.shared).value(), Packed(own, request.own).value(), fresh)
        )

    def set_state(self, request: Request) -> None:
        """Restore the environments. The request's arguments are (states, has_masks), or the nesting of an `Answer.state`."""
        arguments: Any = request.arguments
        states, has_masks = arguments if len(arguments) == 2 else Packed(arguments[0], request.own).value()
        self.env.group.set_state(states, has_masks)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


OWN = frozenset({"reset", "begin", "step", "attach", "collect", "set_state"})
"""Requests that only collectors answer, and requests that collectors answer differently from `REQUESTS`."""
