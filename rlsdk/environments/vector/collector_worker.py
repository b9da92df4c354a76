"""A collector: a worker with environments and a copy of the policy, which collects rollouts and answers requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.states import OpaqueValue
from rlsdk.environments.vector.by_value import ByValue
from rlsdk.environments.vector.seeds import Seeds
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.environments.vector.worker import REQUESTS, sendable
from rlsdk.executors.packed import Packed
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Observation
from rlsdk.spaces import Space

Bytes: TypeAlias = NDArray[np.uint8]
NOTHING: Bytes = np.zeros(0, np.uint8)
MOVING = frozenset({"reset", "begin", "set", "call", "set_state", "attach", "collect"})
"""Requests that change the environments. The answer contains their new state, for a new worker in case this one dies."""


class Attached(Protocol):
    """A function that collects a rollout in the environments of one collector."""

    def __call__(self, shared: Any, own: Any, fresh: Observation | None) -> object:
        """A rollout, and the data that the next rollout needs.

        Args:
            shared: data that is the same for all collectors.
            own: data of this collector.
            fresh: None, or the first observation of new episodes, if the worker was replaced and its episodes are lost.
        """
        ...


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
        if (own := OWN.get(request.name)) is not None:
            value = own(self, request)
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


MakesAttached: TypeAlias = Callable[[VectorEnv], Attached]
OWN: Mapping[str, Callable[[CollectorWorker, Request], object]] = {
    "reset": CollectorWorker.reset,
    "begin": CollectorWorker.begin,
    "step": CollectorWorker.step,
    "attach": CollectorWorker.attach,
    "collect": CollectorWorker.collect,
    "set_state": CollectorWorker.set_state,
}
"""Requests that only collectors answer, and requests that collectors answer differently from `REQUESTS`."""
