"""The worker of some environments of a vector environment: it answers requests about them, in a process or elsewhere."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import Environment
from rlsdk.environments.adapters.observations import ActionRows
from rlsdk.environments.states import OpaqueValue
from rlsdk.environments.vector.connected import Options
from rlsdk.environments.vector.stepping import Contents, Ended, StepArrays, Work
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.errors import EnvironmentFault, RlsdkError, raise_stop, raised
from rlsdk.executors.shared_memory import ALIGNMENT, Layout, Packed
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Observation
from rlsdk.spaces import Space

T = TypeVar("T")


Attached: TypeAlias = Callable[[Any, Any, Observation | None], object]
"""A function (shared, own, fresh) -> a rollout in the environments of one collector, with the data that the next one needs.

`shared` is the same for all collectors, `own` is data of this collector. `fresh` is None, or the first observation of new
episodes, if the worker was replaced and its episodes are lost.
"""
MakesAttached: TypeAlias = Callable[[VectorEnv], Attached]
MOVES = frozenset({"reset", "begin", "step", "set_attr", "env_method", "set_state", "attach", "collect"})
"""Requests after which environments may be in another state."""
READ_AFTER = MOVES - {"step"}
"""Requests after which the state is read. After every step this would take too long."""


# a tuple: one is sent to each worker at every step, and other records take longer to pickle
class Request(NamedTuple):
    """A request to a worker: `name` is the name of a method of `VectorWorker`, or of its `EnvironmentGroup`."""

    name: str
    arguments: tuple[Any, ...] = ()
    infos: bool = False
    """Whether steps have infos."""
    info_names: tuple[str, ...] = ()
    """The entries of infos that steps have as numbers."""


@attrs.frozen(eq=False)
class PackedRequest:
    """A request with packed arguments. Their tensors are fields of their own, which are sent through shared memory."""

    name: str
    arguments: tuple[Any, ...]
    """The nestings of the arguments (`Packed.nest`)."""
    infos: bool
    info_names: tuple[str, ...]
    first: NDArray[np.uint8]
    """The tensors of the first argument."""
    second: NDArray[np.uint8] | None = None


@attrs.frozen(eq=False)
class Stepped:
    """The answer to `step`, if it is more than the episodes that ended."""

    ended: Ended | None
    infos: list[dict[str, object]]
    """The complete infos for callbacks, if they are recorded."""
    entries: NDArray[np.float32]
    """The declared entries, [K, number of environments of this worker]."""
    contents: Contents | None
    lost: bool
    """Whether the environments were not stepped, as they are in a new episode, which the policy has not seen yet."""


@attrs.frozen
class Assignment:
    """The copies that a worker steps, `rows` of `total`, and the memory for their results. A call makes the worker."""

    makers: ByValue[list[Callable[[], Environment]]]
    """The functions that make the environments."""
    spaces: tuple[Space, Space]
    name: str
    rows: range
    """The numbers of the copies."""
    total: int
    block: Block | None = None
    """The shared memory for the results of all copies; None: results are in the answers."""
    remembered: bool = False
    """Whether answers contain the state of the environments, for a new worker in case this one dies."""

    def environments(self) -> SyncVectorEnv:
        """Make the environments, where they are stepped."""
        try:
            made = [make() for make in self.makers()]
        except RlsdkError:
            raise
        except BaseException as error:
            raise_stop(error)
            raise EnvironmentFault(f"environment {self.name!r} {raised(error)}") from error
        numbers = self.rows if self.total > 1 else ()
        env = SyncVectorEnv(made, *self.spaces, name=self.name, numbers=numbers)
        if self.block is not None:
            env.group.write_to(arrays_in(self.block, self.spaces, self.total).part(self.rows.start, self.rows.stop))
        return env

    def __call__(self) -> VectorWorker:
        return VectorWorker(self)


def numbers_in(rows: range) -> str:
    """The numbers of the environments of a worker, for messages."""
    return f"number {rows.start}" if len(rows) == 1 else f"numbers {rows.start} to {rows.stop - 1}"


class VectorWorker:
    """The environments of one worker. A call answers a request.

    The answer is a pair: the result of the method, and the packed state of the environments after it. The state is None after
    requests that are not in `READ_AFTER`, and if it is not remembered or cannot be read.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment, self.env = assignment, assignment.environments()
        self.group, self.close = self.env.group, self.env.close
        self._attached: Attached | None = None
        self._fresh: Observation | None = None

    def __call__(self, request: Request | PackedRequest) -> tuple[object, Packed | None]:
        env, arguments = self.env, request.arguments
        if (request.infos, request.info_names) != (env.keeps_infos, env.info_names):
            env.keep_infos(request.infos)
            env.select_info(request.info_names)
        if isinstance(request, PackedRequest):
            arrays = [each for each in (request.first, request.second) if each is not None]
            arguments = tuple(Packed(nest, data).value() for nest, data in zip(arguments, arrays, strict=True))
        # own methods first: those of the same name do more than the method of the group
        method: Callable[..., object] = getattr(self, request.name, None) or getattr(self.group, request.name)
        result, reads = method(*arguments), self.assignment.remembered and request.name in READ_AFTER
        return result, self._state() if reads else None

    def _state(self) -> Packed | None:
        try:
            return Packed.of((self.group.get_state(), self.group.has_masks))
        except OpaqueValue:
            return None

    def _contents(self) -> Contents | None:
        return self.group.arrays.contents() if self.assignment.block is None else None

    def has_masks(self) -> bool:
        """Whether the environments give action masks."""
        return self.group.has_masks

    def reset(self, seeds: Sequence[int | None], options: Sequence[Options]) -> tuple[bool, Contents | None]:
        """Reset the environments. Returns (whether they give action masks, the observations)."""
        self.env.begin(seeds, options)
        self._fresh = None
        return self.group.has_masks, self._contents()

    def begin(self, seeds: Sequence[int | None]) -> None:
        """Begin new episodes instead of those that a dead worker lost. The next step or rollout starts with them."""
        self._fresh, arrays = self.env.begin(seeds), self.group.arrays
        # the dead worker may have written a part of a step, and its rows are part of the next record
        arrays.reward[:], arrays.terminated[:], arrays.truncated[:] = 0.0, False, False

    def step(self, actions: ActionRows) -> Ended | Stepped | None:
        """Step the environments, which also resets those whose episode ended."""
        env, group, lost = self.env, self.group, self._fresh is not None
        self._fresh, ended = None, None if lost else group.step(actions)
        if self.assignment.block is not None and not (lost or env.keeps_infos or env.info_names):
            return ended
        infos = [sendable(group.name, info) for info in group.infos]
        return Stepped(ended, infos, group.entries.values, self._contents(), lost)

    def set_state(self, state: tuple[Sequence[Mapping[str, object]], bool]) -> None:
        """Restore (states of the environments, whether they give action masks)."""
        self.group.set_state(*state)
        self._fresh = None

    def env_method(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], rows: Sequence[int]
    ) -> list[object]:
        """Call a method of the environments `rows`."""
        return self.group.env_method(name, *args, indices=rows, **kwargs)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [sendable(self.group.name, dict(info)) for info in self.group.reset_infos]

    def apply(self, work: ByValue[Work[object, object]], items: Sequence[object]) -> list[object]:
        """The results of `work(environments, items)`."""
        return self.group.apply(work(), items)

    def attach(self, make: ByValue[MakesAttached]) -> None:
        """Make the function that collects in the environments."""
        self._attached = make()(self.env)

    def collect(self, shared: object, own: object) -> Packed:
        """Collect a rollout, with data for all collectors and data for this one."""
        assert self._attached is not None
        fresh, self._fresh = self._fresh, None
        return Packed.of(self._attached(shared, own, fresh))


def sendable(name: str, info: dict[str, object]) -> dict[str, object]:
    """The `info`, unchanged, after a check that it can be sent to another process.

    Raises:
        EnvironmentFault: an entry cannot be pickled.
    """
    if not _can_be_sent(info):
        bad = next((key for key, value in info.items() if not _can_be_sent(value)), "?")
        raise EnvironmentFault(
            f"environment {name!r}: info[{bad!r}], a {type(info.get(bad)).__name__}, cannot be sent from its process"
            " to a callback that needs infos; use vectorization='sync', or leave it out of info"
        )
    return info


def _can_be_sent(value: object) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:  # pickling may raise any error
        return False
    return True


class ByValue(Generic[T]):
    """A value that is pickled by value with cloudpickle. A call of this object returns the value.

    The value is pickled only once, even if it is sent several times.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def __call__(self) -> T:
        return self.value

    @cached_property
    def _pickled(self) -> bytes:
        wrapper: CloudpickleWrapper[Any] = CloudpickleWrapper(cast("Any", self.value))
        return wrapper.__getstate__()

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._pickled,)


def _unpickled(pickled: bytes) -> ByValue[Any]:
    # gymnasium's wrapper reads it: nothing in rlsdk imports pickle, so that no file is ever read with it
    wrapper: CloudpickleWrapper[Any] = CloudpickleWrapper.__new__(CloudpickleWrapper)
    wrapper.__setstate__(pickled)
    return ByValue(wrapper.fn)


Block: TypeAlias = "ctypes.Array[ctypes.c_ubyte]"
"""The type of the block of memory that processes share."""


def bytes_for(spaces: tuple[Space, Space], rows: int) -> int:
    """The size in bytes of the block for the arrays of `rows` environments."""
    layout = Layout()
    StepArrays(*spaces, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Block, spaces: tuple[Space, Space], rows: int) -> StepArrays:
    """The arrays of `rows` environments as views of a block, which all processes share."""
    return StepArrays(*spaces, rows, Layout(memoryview(block).cast("B")))
