"""The worker of a collector: it has environments and a copy of the policy, and answers requests with all that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments import OpaqueValue
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Observation
from rlsdk_parallel.environment_worker import ByValue, EnvRequest, VectorWorker

if TYPE_CHECKING:
    from rlsdk_parallel.collector import Part, Shared

Attached: TypeAlias = "Callable[[Shared, Part, Observation | None], Part]"
"""A function (shared, own, fresh) -> a rollout in the environments of one collector, with the data that the next one needs.

`shared` is the same for all collectors, `own` is data of this collector. `fresh` is None, or the first observation of new
episodes, if the worker was replaced and its episodes are lost.
"""
MakesAttached: TypeAlias = "Callable[[VectorEnv], Attached]"
MOVES = frozenset({"reset", "begin", "step", "set_attr", "env_method", "write_states", "attach", "collect"})
"""Requests after which environments may be in another state."""
READ_AFTER = MOVES - {"step"}
"""Requests after which the state is read. After every step this would take too long."""
ALIGNMENT = 64


@attrs.frozen
class Place:
    """The offset of a tensor in the array of bytes (`start`), with its shape and dtype."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@attrs.frozen(eq=False)
class Packed:
    """Nested dataclasses, mappings, tuples and lists of tensors and plain values, packed for sending.

    All tensors are in one array, which can be sent through shared memory.
    """

    nest: object
    """The nested value, with a `Place` instead of each tensor."""
    data: NDArray[np.uint8]
    """uint8 [number of bytes]: the tensors one after another, each aligned to `ALIGNMENT` bytes."""

    @staticmethod
    def of(value: object) -> Packed:
        """Pack `value`; its tensors [..] are copied."""
        parts, places, end = list[Tensor](), list[int](), 0

        def place(leaf: Tensor) -> Place:
            nonlocal end
            flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            start = end
            parts.append(flat)
            places.append(start)
            end += -(-len(flat) // ALIGNMENT) * ALIGNMENT
            return Place(start, tuple(leaf.shape), leaf.dtype)

        nest, data = _mapped(value, Tensor, place), np.zeros(end, np.uint8)
        target = torch.from_numpy(data)
        for start, flat in zip(places, parts, strict=True):
            target[start : start + len(flat)] = flat
        return Packed(nest, data)

    def value(self) -> Any:
        """Return the nested value, with copies of the tensors."""
        data = self.data  # the tensors below are copies: this array may be in shared memory that is overwritten later

        def tensor(place: Place) -> Tensor:
            size = place.dtype.itemsize
            for length in place.shape:
                size *= length
            own = torch.from_numpy(data[place.start : place.start + size].copy())
            return own.view(place.dtype).view(place.shape)

        return _mapped(self.nest, Place, tensor)


def _mapped(node: Any, kind: type, function: Callable[[Any], object]) -> Any:
    """Return the nested value `node`, with `function(leaf)` in place of every leaf of the class `kind`."""
    if isinstance(node, kind):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _mapped(value, kind, function) for key, value in node.items()}
    if (names := _fields(node.__class__)) is not None:
        return type(node)(*[_mapped(getattr(node, name), kind, function) for name in names])
    if isinstance(node, tuple | list):
        found = [_mapped(value, kind, function) for value in node]
        return found if isinstance(node, list) else tuple(found)
    return node


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; None for other classes."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@attrs.frozen(eq=False)
class PackedRequest:
    """A request with packed arguments. Their tensors are fields of their own, which are sent through shared memory."""

    name: str
    request: EnvRequest
    """The request, with the nestings of the arguments (`Packed.nest`)."""
    first: NDArray[np.uint8]
    """The tensors of the first argument."""
    second: NDArray[np.uint8] | None = None

    def unpacked(self) -> EnvRequest:
        """The request with its arguments."""
        arrays = [each for each in (self.first, self.second) if each is not None]
        plain, pairs = self.request, zip(self.request.arguments, arrays, strict=True)
        arguments = tuple(Packed(nest, data).value() for nest, data in pairs)
        return EnvRequest(plain.name, arguments, plain.infos, plain.info_names)


# a tuple: one is sent by each worker at every step, and other records take longer to pickle
class Answer(NamedTuple):
    """The answer to a request."""

    result: object
    """What the method returned."""
    contents: Any
    """Observations, rewards and flags after `reset` and `step`, else None."""
    state: Packed | None
    """The state of the environments; None if it cannot be read, and after requests that are not in `READ_AFTER`."""


class CollectingWorker(VectorWorker):
    """The environments of one collector. It can be on another machine, so its answers contain all that changed."""

    _attached: Attached | None = None

    def __call__(self, request: EnvRequest | PackedRequest) -> Answer:
        plain = request.unpacked() if isinstance(request, PackedRequest) else request
        result, name = super().__call__(plain), plain.name
        contents = self.arrays.contents() if name in ("reset", "step") else None
        return Answer(result, contents, self._state() if name in READ_AFTER else None)

    def _state(self) -> Packed | None:
        try:
            return Packed.of((self.env.read_states(), self.env.has_masks))
        except OpaqueValue:
            return None

    def attach(self, make: ByValue[MakesAttached]) -> None:
        """Make the function that collects in the environments."""
        self._attached = make()(self.env)

    def collect(self, shared: Shared, own: Part) -> Packed:
        """Collect a rollout, with data for all collectors and data for this one."""
        assert self._attached is not None
        fresh, self.fresh = self.fresh, None
        return Packed.of(self._attached(shared, own, fresh))
