"""Captures the operations of a function as CUDA graphs. On a GPU, launching the operations of a small network takes several
times as long as computing them. A graph launches all of them at once.

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from operator import is_
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk import tree

ResultT = TypeVar("ResultT")
CALLS_BEFORE_CAPTURE = 3
"""So many calls run as written, so that torch's libraries choose algorithms and allocate memory before the capture."""
MOST_GRAPHS = 4
"""Further combinations of shapes and choices run as written, as each graph holds memory."""
KNOWN_MODULES = ("torch.nn.", "rlsdk.")


@dataclass(frozen=True, slots=True, eq=False)
class Capture(Generic[ResultT]):
    """A graph, and the tensors that it reads and writes at each replay."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    numbers: list[Tensor]
    values: list[Tensor]
    build: Callable[[list[Tensor]], ResultT]
    """Returns the result, given copies of `values`."""

    def replay(self, inputs: Iterable[Tensor], numbers: Iterable[float] = ()) -> ResultT:
        """Return a new copy of the result, given `inputs` [..]."""
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given, non_blocking=True)
        for place, number in zip(self.numbers, numbers, strict=True):
            place.fill_(number)
        self.graph.replay()
        return self.build([value.clone() for value in self.values])


def captured(
    function: Callable[[], tuple[list[Tensor], Callable[[list[Tensor]], ResultT]]],
    inputs: list[Tensor],
    numbers: list[Tensor],
    generator: Generator | None = None,
) -> Capture[ResultT]:
    """Capture a function of the tensors `inputs` [..] and `numbers` [], which draws from `generator`. It returns
    `Capture.values` and `Capture.build`.

    Raises:
        RuntimeError: the function does something that a graph cannot do. Then `generator` cannot be used any more.
    """
    device = inputs[0].device
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own one may be of another GPU
    with torch.cuda.device(device), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        values, build = function()
    # the stream still sets the generator's numbers, which the first replay sets again
    torch.cuda.current_stream(device).wait_stream(stream)
    return Capture(graph, inputs, numbers, values, build)


class Captures(Generic[ResultT]):
    """The captures of one function, by the properties of its arguments that determine its operations."""

    def __init__(self) -> None:
        self.made: dict[Hashable, Capture[ResultT]] = {}
        self.fails = False
        self._calls: dict[Hashable, int] = {}

    def get(self, key: Hashable, make: Callable[[], Capture[ResultT]]) -> Capture[ResultT] | None:
        """Return the capture for `key`; None if the function must be called as written. `make` is called once for each key."""
        if (capture := self.made.get(key)) is not None or self.fails or len(self.made) >= MOST_GRAPHS:
            return capture
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        if calls > CALLS_BEFORE_CAPTURE:
            try:
                capture = self.made[key] = make()
            except RuntimeError:  # the function needs values on the CPU, for example
                self.fails = True
        return capture


def same_objects(one: list[object], other: list[object]) -> bool:
    """Whether two lists hold the same objects, compared by identity."""
    return len(one) == len(other) and all(map(is_, one, other))


def signature(node: object) -> Hashable:
    """The structure of a tree with the shapes and dtypes of its leaves [..]."""
    layout = tree.layout(node)
    return (layout, *[(leaf.shape, leaf.dtype) for leaf in layout.pick(node)])


def is_known(module: nn.Module) -> bool:
    """Whether the operations of a module, without hooks, depend on the shapes of its inputs only."""
    return type(module).__module__.startswith(KNOWN_MODULES)


def tables_of(networks: Iterable[nn.Module]) -> list[dict[str, Tensor | None]]:
    """The dictionaries in which the modules of networks hold their parameters and buffers [..]."""
    modules = [module for network in networks for module in network.modules()]
    return [table for module in modules for table in (module._parameters, module._buffers) if table]  # type: ignore[misc]


def addresses(tables: Iterable[dict[str, Tensor | None]]) -> Iterator[int]:
    """The memory of all tensors [..] in the tables."""
    for table in tables:
        for value in table.values():
            if value is not None:
                yield value.data_ptr()
