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
from rlsdk.environments.vector.connected import Options
from rlsdk.environments.vector.stepping import Ended, ItemT, ResultT, StepArrays, Work
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.errors import EnvironmentFault, RlsdkError, raise_stop, raised
from rlsdk.records import Observation
from rlsdk.spaces import Space
from rlsdk_parallel.shared_memory import ALIGNMENT, Layout

T = TypeVar("T")


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
class Stepped:
    """The answer to `step`, if it is more than the episodes that ended."""

    ended: Ended | None
    infos: list[dict[str, object]]
    """The complete infos for callbacks, if they are recorded."""
    entries: NDArray[np.float32]
    """The declared entries, [K, number of environments of this worker]."""
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
    """The shared memory for the results of all copies; None: there is none."""

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


class VectorWorker:
    """The environments of one worker, `env`. A call answers a request with the result of the method that it names."""

    def __init__(self, assignment: Assignment) -> None:
        self.env = assignment.environments()
        self.group, self.close = self.env.group, self.env.close
        self.fresh: Observation | None = None
        """The first observation of new episodes after those that a dead worker lost; None: no episodes were lost."""

    def __call__(self, request: Request) -> object:
        env = self.env
        if (request.infos, request.info_names) != (env.keeps_infos, env.info_names):
            env.keep_infos(request.infos)
            env.select_info(request.info_names)
        # own methods first: those of the same name do more than the method of the group
        method: Callable[..., object] = getattr(self, request.name, None) or getattr(self.group, request.name)
        return method(*request.arguments)

    def has_masks(self) -> bool:
        """Whether the environments give action masks."""
        return self.group.has_masks

    def reset(self, seeds: Sequence[int | None], options: Sequence[Options]) -> bool:
        """Reset the environments. Returns whether they give action masks."""
        self.env.begin(seeds, options)
        self.fresh = None
        return self.group.has_masks

    def begin(self, seeds: Sequence[int | None]) -> None:
        """Begin new episodes instead of those that a dead worker lost. The next step or rollout starts with them."""
        self.fresh, arrays = self.env.begin(seeds), self.group.arrays
        # the dead worker may have written a part of a step, and its rows are part of the next record
        arrays.reward[:], arrays.terminated[:], arrays.truncated[:] = 0.0, False, False

    def step(self, actions: ActionRows) -> Ended | Stepped | None:
        """Step the environments, which also resets those whose episode ended."""
        env, group, lost = self.env, self.group, self.fresh is not None
        self.fresh, ended = None, None if lost else group.step(actions)
        if not (lost or env.keeps_infos or env.info_names):
            return ended
        infos = [sendable(group.name, info) for info in group.infos]
        return Stepped(ended, infos, group.entries.values, lost)

    def set_state(self, state: tuple[Sequence[Mapping[str, object]], bool]) -> None:
        """Restore (states of the environments, whether they give action masks)."""
        self.group.set_state(*state)
        self.fresh = None

    def env_method(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], rows: Sequence[int]
    ) -> list[object]:
        """Call a method of the environments `rows`."""
        return self.group.env_method(name, *args, indices=rows, **kwargs)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [sendable(self.group.name, dict(info)) for info in self.group.reset_infos]

    def apply(self, work: ByValue[Work[ItemT, ResultT]], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`."""
        return self.group.apply(work(), items)


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
