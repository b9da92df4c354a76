"""The worker of some environments of a vector environment: it answers requests about them, in a process or elsewhere."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import gymnasium
import numpy as np
import torch
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments import SyncVectorEnv
from rlsdk.errors import EnvironmentFault, raise_fault
from rlsdk.records import Observation
from rlsdk.spaces import Space, choices_of, dtype_of, map_leaves, shape_of
from rlsdk_parallel.shared_memory import ALIGNMENT, Layout

T = TypeVar("T")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Maker: TypeAlias = Callable[[], "gymnasium.Env[object, object]"]
"""A function that makes one environment."""
Work: TypeAlias = Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]]
"""A function (environments, items) -> results in the order of the items. The environments are copies of one environment."""
Spaces: TypeAlias = tuple[Space, Space]
"""The observation space and the action space."""


# a tuple: one is sent to each worker at every step, and other records take longer to pickle
class EnvRequest(NamedTuple):
    """A request to a worker: `name` is the name of a method of `VectorWorker`, or of its `SyncVectorEnv`."""

    name: str
    arguments: tuple[object, ...] = ()
    infos: bool = False
    """Whether steps have infos."""
    info_names: tuple[str, ...] = ()
    """The entries of infos that steps have as numbers."""


class Rest(NamedTuple):
    """What a step of a worker's n environments has besides observations, rewards and masks, which are in its arrays."""

    ended: Any
    """The episodes that ended, as `SyncVectorEnv.step_into` returns them; None if none ended."""
    infos: list[dict[str, object]]
    """The complete infos for callbacks, if they are recorded."""
    entries: NDArray[np.float32] | None
    """The declared entries, [K, n]; None if there are none."""
    lost: bool
    """Whether the environments were not stepped, as they are in a new episode, which the policy has not seen yet."""


@attrs.frozen
class Assignment:
    """The copies that a worker steps, `rows` of `total`, and the memory for their results. A call makes the worker."""

    makers: ByValue[list[Maker]]
    """The functions that make the environments."""
    spaces: Spaces
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
        except BaseException as error:
            raise_fault(error, f"environment {self.name!r}")
        return SyncVectorEnv(made, *self.spaces, name=self.name, numbers=self.rows if self.total > 1 else ())

    def arrays(self) -> StepArrays:
        """The arrays for the results of these copies."""
        if self.block is None:
            return StepArrays(self.spaces, len(self.rows))
        return arrays_in(self.block, self.spaces, self.total).part(self.rows)

    def __call__(self) -> VectorWorker:
        return VectorWorker(self)


class VectorWorker:
    """The environments of one worker, `env`. A call answers a request with the result of the method that it names."""

    def __init__(self, assignment: Assignment) -> None:
        self.env, self.arrays = assignment.environments(), assignment.arrays()
        self.close = self.env.close
        self.fresh: Observation | None = None
        """The first observation of new episodes after those that a dead worker lost; None: no episodes were lost."""

    def __call__(self, request: EnvRequest) -> object:
        env = self.env
        if (request.infos, request.info_names) != (env.keeps_infos, env.info_names):
            env.keep_infos(request.infos)
            env.select_info(request.info_names)
        # own methods first: those of the same name do more than the method of the environments
        method: Callable[..., object] = getattr(self, request.name, None) or getattr(env, request.name)
        return method(*request.arguments)

    def has_masks(self) -> bool:
        """Whether the environments give action masks."""
        return self.env.has_masks

    def reset(self, seeds: Sequence[int | None], options: Sequence[dict[str, object] | None]) -> bool:
        """Reset the environments. Returns whether they give action masks."""
        self.arrays.write(self.env.begin(seeds, options))
        self.fresh = None
        return self.env.has_masks

    def begin(self, seeds: Sequence[int | None]) -> None:
        """Begin new episodes instead of those that a dead worker lost. The next step or rollout starts with them."""
        self.fresh = self.env.begin(seeds)
        self.arrays.write(self.fresh)
        # the dead worker may have written a part of a step, and its rows are part of the next record
        self.arrays.reward[:] = 0.0

    def step(self, actions: Any) -> Rest | None:
        """Step the environments with decoded actions. Returns None if all of the step is in the arrays."""
        env, arrays, ended, lost = self.env, self.arrays, None, self.fresh is not None
        self.fresh = None
        if not lost:
            mask = arrays.mask if env.has_masks else None
            ended = env.step_into(actions, arrays.features, arrays.reward, mask)
        if ended is None and not (lost or env.keeps_infos or env.info_names):
            return None
        # without names there is no array: even an empty one takes as long to send as all else
        entries = env.entries if env.info_names else None
        return Rest(ended, [sendable(env.name, info) for info in env.infos], entries, lost)

    def write_states(self, state: tuple[Sequence[Mapping[str, object]], bool]) -> None:
        """Restore (states of the environments, whether they give action masks)."""
        self.env.write_states(*state)
        self.fresh = None

    def env_method(
        self, name: str, args: Sequence[object], kwargs: Mapping[str, object], rows: Sequence[int]
    ) -> list[object]:
        """Call a method of the environments `rows`."""
        return self.env.env_method(name, *args, indices=rows, **kwargs)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [sendable(self.env.name, info) for info in self.env.reset_infos()]

    def apply(self, work: ByValue[Work[ItemT, ResultT]], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`."""
        return self.env.map(work(), items)


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


def _unpickled(pickled: bytes) -> ByValue[object]:
    # gymnasium's wrapper reads it: nothing in rlsdk imports pickle, so that no file is ever read with it
    wrapper: CloudpickleWrapper[Any] = CloudpickleWrapper.__new__(CloudpickleWrapper)
    wrapper.__setstate__(pickled)
    return ByValue(wrapper.fn)


class StepArrays:
    """The observations, rewards and masks of a step or reset as arrays, with one row per environment.

    `make` allocates an array, as `np.zeros` does.
    """

    def __init__(self, spaces: Spaces, rows: int, make: Callable[..., NDArray[Any]] = np.zeros) -> None:
        self.space, action_space = spaces
        self.features: Any = map_leaves(
            self.space, lambda _, leaf: make((rows, *shape_of(leaf)), np.dtype(dtype_of(leaf)))
        )
        self.reward = make((rows,), np.dtype(np.float32))
        self.mask = make((rows, sum(choices_of(action_space))), np.dtype(np.bool_))

    def part(self, rows: range) -> StepArrays:
        """Views of some rows."""
        view, own = copy.copy(self), slice(rows.start, rows.stop)
        view.features = map_leaves(self.space, lambda _, __, array: array[own], self.features)
        view.reward, view.mask = self.reward[own], self.mask[own]
        return view

    def write(self, observation: Observation) -> None:
        """Write the observation after a reset."""
        mask = observation.action_mask
        features = map_leaves(self.space, lambda _, __, leaf: leaf.numpy(), observation.features)
        self.take((features, self.reward, self.mask if mask is None else mask.numpy()))

    def contents(self) -> tuple[Any, ...]:
        """The arrays, to be sent to the process that joins them."""
        return self.features, self.reward, self.mask

    def take(self, contents: tuple[Any, ...]) -> None:
        """Copy what `contents` of other arrays returned."""
        features, self.reward[:], self.mask[:] = contents
        map_leaves(self.space, lambda _, __, target, own: np.copyto(target, own), self.features, features)

    def observation(self, is_first: Tensor, has_masks: bool) -> Observation:
        """The observation in the arrays, copied, with `is_first` bool [B]."""
        features = map_leaves(self.space, lambda _, __, array: torch.from_numpy(array.copy()), self.features)
        return Observation(features, is_first, torch.from_numpy(self.mask.copy()) if has_masks else None)


Block: TypeAlias = "ctypes.Array[ctypes.c_ubyte]"
"""The type of the block of memory that processes share."""


def bytes_for(spaces: Spaces, rows: int) -> int:
    """The size in bytes of the block for the arrays of `rows` environments."""
    layout = Layout()
    StepArrays(spaces, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Block, spaces: Spaces, rows: int) -> StepArrays:
    """The arrays of `rows` environments as views of a block, which all processes share."""
    return StepArrays(spaces, rows, Layout(memoryview(block).cast("B")))


def groups(items: Sequence[ItemT], size: int, workers: int = 1) -> list[list[ItemT]]:
    """Split the items into groups of `size` items.

    With several workers, the last groups have fewer items, but at least about `size` / 2, so that all workers finish at about
    the same time. Smaller groups would be slower, because an item takes less time in a larger group.
    """
    found, start = list[list[ItemT]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found
