"""The process of a `ProcessVectorEnv`: it answers requests about a group of environments; arrays that it shares."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import Environment
from rlsdk.environments.adapters.observations import ActionRows
from rlsdk.environments.states import OpaqueValue
from rlsdk.environments.vector.connected import Options
from rlsdk.environments.vector.stepping import Ended, EnvironmentGroup, StepArrays, Work
from rlsdk.errors import EnvironmentFault
from rlsdk.executors.shared_memory import ALIGNMENT, Layout
from rlsdk.spaces import Space

T = TypeVar("T")


@attrs.frozen(eq=False)
class WithInfos:
    """The result of a step with its infos: complete infos for callbacks, and the declared entries as numbers."""

    ended: Ended | None
    infos: list[dict[str, object]]
    entries: NDArray[np.float32]
    """The declared entries, [K, number of environments of this process]."""


@attrs.frozen
class Assignment:
    """The copies that a process steps, `rows` of `total`, and the memory for their results."""

    makers: ByValue[list[Callable[[], Environment]]]
    """The functions that make the environments."""
    observation_space: Space
    action_space: Space
    name: str
    rows: range
    """The numbers of the copies."""
    total: int
    block: Block

    @property
    def part(self) -> slice:
        """The rows of the copies in the arrays of all copies."""
        return slice(self.rows.start, self.rows.stop)

    def arrays(self) -> StepArrays:
        """The arrays for the environments of this process: views of its rows in the shared memory."""
        whole = arrays_in(self.block, self.observation_space, self.action_space, self.total)
        return whole.part(self.rows.start, self.rows.stop)

    def __call__(self) -> SteppedGroup:
        """Make the environments, in the process that steps them."""
        environments = [make() for make in self.makers()]
        numbers = self.rows if self.total > 1 else ()
        return SteppedGroup(EnvironmentGroup(environments, self.arrays(), self.name, numbers))


def numbers_in(rows: range) -> str:
    """The numbers of the environments of a process or collector, for messages."""
    return f"number {rows.start}" if len(rows) == 1 else f"numbers {rows.start} to {rows.stop - 1}"


class SteppedGroup:
    """The environments of one process. A call answers a request: (name, arguments...)."""

    def __init__(self, group: EnvironmentGroup) -> None:
        self.group, self.close = group, group.close

    def __call__(self, request: tuple[str, *tuple[Any, ...]]) -> object:
        name, *arguments = request
        return REQUESTS[name](self.group, *arguments)


def _reset(group: EnvironmentGroup, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> bool:
    group.reset(seeds, options)
    return group.has_masks


def _step(
    group: EnvironmentGroup, actions: ActionRows, keep_infos: bool = False, names: tuple[str, ...] = ()
) -> Ended | WithInfos | None:
    if keep_infos != group.keeps_infos:
        group.keep_infos(keep_infos)
    if names != group.entries.names:
        group.select_info(names)
    ended = group.step(actions)
    if not (keep_infos or names):
        return ended
    return WithInfos(ended, [sendable(group.name, info) for info in group.infos], group.entries.values)


def sendable(name: str, info: dict[str, object]) -> dict[str, object]:
    """The `info`, unchanged, after a check that it can be sent to another process.

    Raises:
        EnvironmentFault: an entry cannot be pickled.
    """
    try:
        ForkingPickler.dumps(info)
    except Exception:
        bad = next((key for key, value in info.items() if not _can_be_sent(value)), "?")
        raise EnvironmentFault(
            f"environment {name!r}: info[{bad!r}], a {type(info.get(bad)).__name__}, cannot be sent from its process"
            " to a callback that needs infos; use vectorization='sync', or leave it out of info"
        ) from None
    return info


def _can_be_sent(value: object) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:  # pickling may raise any error
        return False
    return True


def _call(
    group: EnvironmentGroup, name: str, args: Sequence[object], kwargs: Mapping[str, object], rows: Sequence[int]
) -> list[object]:
    return group.env_method(name, *args, indices=rows, **kwargs)


def _reset_infos(group: EnvironmentGroup) -> list[dict[str, object]]:
    return [sendable(group.name, dict(info)) for info in group.reset_infos]


def _apply(group: EnvironmentGroup, work: ByValue[Work[object, object]], items: Sequence[object]) -> list[object]:
    return group.apply(work(), items)


def _get_state(group: EnvironmentGroup) -> list[dict[str, object]] | OpaqueValue:
    try:
        return group.get_state()
    except OpaqueValue as opaque:
        return opaque


def _has_masks(group: EnvironmentGroup) -> bool:
    return group.has_masks


REQUESTS: dict[str, Callable[..., object]] = {
    "reset": _reset,
    "step": _step,
    "get": EnvironmentGroup.get_attr,
    "set": EnvironmentGroup.set_attr,
    "call": _call,
    "wrappers": EnvironmentGroup.wrappers,
    "reset_infos": _reset_infos,
    "apply": _apply,
    "has_masks": _has_masks,
    "fingerprint": EnvironmentGroup.fingerprint,
    "get_state": _get_state,
    "set_state": EnvironmentGroup.set_state,
}


class ByValue(Generic[T]):
    """A value that is pickled by value with cloudpickle. A call of this object returns the value.

    The value is pickled only once, even if it is sent several times.
    """

    def __init__(self, value: T) -> None:
        self._inner: CloudpickleWrapper[Any] = CloudpickleWrapper(lambda: value)
        self._pickled: bytes | None = None

    def __call__(self) -> T:
        value: T = self._inner()
        return value

    def __getstate__(self) -> bytes:
        if self._pickled is None:
            self._pickled = self._inner.__getstate__()
        return self._pickled

    def __setstate__(self, pickled: bytes) -> None:
        self._inner, self._pickled = CloudpickleWrapper.__new__(CloudpickleWrapper), None
        self._inner.__setstate__(pickled)


Block: TypeAlias = "ctypes.Array[ctypes.c_ubyte]"
"""The type of the block of memory that processes share."""


def bytes_for(observation_space: Space, action_space: Space, rows: int) -> int:
    """The size in bytes of the block for the arrays of `rows` environments."""
    layout = Layout()
    StepArrays(observation_space, action_space, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Block, observation_space: Space, action_space: Space, rows: int) -> StepArrays:
    """The arrays of `rows` environments as views of a block, which all processes share."""
    return StepArrays(observation_space, action_space, rows, Layout(memoryview(block).cast("B")))
