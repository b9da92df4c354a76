"""Replays updates as CUDA graphs. On a GPU, launching the operations of a small update takes several times as long as
computing them. A graph launches all of them at once.

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rlsdk import tree
from rlsdk.kernels.hooks import function_modes
from rlsdk.kernels.structure import Structure

Numbers = float | tuple[float | None, ...]
CALLS_BEFORE_CAPTURE = 3
"""So many calls run as written, so that torch's libraries choose algorithms and allocate memory before the capture."""
MOST_GRAPHS = 4
"""Further combinations of shapes and choices run as written, as each graph holds memory."""
ResultT = TypeVar("ResultT")
KNOWN_MODULES = ("torch.nn.", "rlsdk.")
HELPERS = "rlsdk.updates."
"""The package whose objects are searched for networks and optimisers, if the algorithm holds them."""


@dataclass(frozen=True, slots=True, eq=False)
class Capture(Generic[ResultT]):
    """A graph, and the tensors that it reads and writes at each replay."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    numbers: list[Tensor]
    values: Tensor
    """All numbers of the result, float [D]; see `joined`."""
    build: Callable[[Tensor], ResultT]
    """Build the result from them; see `builder`."""

    def replay(self, inputs: Iterable[Tensor], numbers: Iterable[float]) -> ResultT:
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given, non_blocking=True)
        for place, number in zip(self.numbers, numbers, strict=True):
            place.fill_(number)
        self.graph.replay()
        return self.build(self.values.clone())


def joined(node: object) -> Tensor:
    """All numbers of a tree of float tensors, [D]: one copy of them is faster than one of each tensor."""
    return torch.cat([leaf.reshape(-1) for leaf in tree.leaves(node)])


def builder(node: ResultT) -> Callable[[Tensor], ResultT]:
    """Return the inverse of `joined`, for trees with the structure and the shapes of `node`."""
    layout = tree.layout(node)
    shapes = [leaf.shape for leaf in layout.pick(node)]
    sizes = [shape.numel() for shape in shapes]

    def build(values: Tensor) -> ResultT:
        parts = torch.split(values, sizes)
        built: ResultT = layout.build(part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        return built

    return build


class GraphedUpdate(Generic[ResultT]):
    """Calls the learning step of an algorithm, and replays it as a CUDA graph once it was called a few times.

    A graph repeats exactly the operations of its capture. So the step is captured again when an attribute of the algorithm
    has changed, and it runs as written where its Python code might act differently in each call: with modules or optimisers
    of other packages, or with hooks.
    """

    def __init__(self, step: Callable[..., ResultT], algorithm: object, counters: tuple[str, ...]) -> None:
        """`counters` are attributes that change in every update and that the step does not read."""
        self._step, self._algorithm, self._counters = step, algorithm, counters
        self._networks, self._structure = list[nn.Module](), Structure()
        self._state: list[object] = []
        self._calls: dict[Hashable, int] = {}
        self._captures: dict[Hashable, Capture[ResultT]] = {}
        self._fails = False

    def __call__(self, inputs: object, numbers: Numbers, *choices: Hashable) -> ResultT:
        """Return the result of the step; see `rlsdk.kernels.graphed` for the arguments."""
        if self._fails or any(isinstance(choice, float) for choice in choices) or not self._may_replay():
            return self._step(self._algorithm, inputs, numbers, *choices)
        layout, given = tree.layout(inputs), _listed(numbers)
        leaves = list(layout.pick(inputs))
        key = (choices, layout, *((leaf.shape, leaf.dtype) for leaf in leaves), *(number is None for number in given))
        if (capture := self._captures.get(key)) is None:
            calls = self._calls[key] = self._calls.get(key, 0) + 1
            if calls <= CALLS_BEFORE_CAPTURE or len(self._captures) >= MOST_GRAPHS:
                return self._step(self._algorithm, inputs, numbers, *choices)
            try:
                capture = self._captures[key] = self._capture(inputs, numbers, choices)
            except RuntimeError:  # the step needs values on the CPU, for example
                self._fails = True
                return self._step(self._algorithm, inputs, numbers, *choices)
        for optimizer in self._optimizers:
            optimizer.param_groups[0]["lr"] = given[0]
        return capture.replay(leaves, (number for number in given if number is not None))

    def _may_replay(self) -> bool:
        """Whether a capture does what the step does now. Captures of an earlier state of the algorithm are dropped."""
        found = _Found(self._algorithm, self._counters)
        if found.networks != self._networks or self._structure.changed():
            self._networks, self._structure = found.networks, Structure(*found.networks)
            self._structure.changed()
            self._known = all(_is_known(module) for network in found.networks for module in network.modules())
        self._optimizers = found.optimizers
        state = list(found.state())
        if len(state) != len(self._state) or not all(map(_equal, state, self._state)):
            self._calls, self._captures, self._state, self._fails = {}, {}, state, False
        adam = all(type(optimizer) is torch.optim.Adam for optimizer in found.optimizers)
        steady = self._known and not found.has_train_mode and not self._structure.hooked
        return adam and steady and not function_modes()

    def _capture(self, inputs: object, numbers: Numbers, choices: tuple[Hashable, ...]) -> Capture[ResultT]:
        """Raises RuntimeError if the step does something that a graph cannot do."""
        own = tree.map_tensors(Tensor.clone, inputs)
        leaves = list(tree.layout(own).pick(own))
        device = leaves[0].device
        tensors = [None if number is None else torch.full((), number, device=device) for number in _listed(numbers)]
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own one may be of another GPU
        with torch.cuda.device(device), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            argument = tuple(tensors) if isinstance(numbers, tuple) else tensors[0]
            result = self._step(self._algorithm, own, argument, *choices)
            values = joined(result)
        return Capture(graph, leaves, [tensor for tensor in tensors if tensor is not None], values, builder(result))

    def __getstate__(self) -> dict[str, object]:
        """A copy makes its own captures."""
        return {"step": self._step, "algorithm": self._algorithm, "counters": self._counters}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _listed(numbers: Numbers) -> tuple[float | None, ...]:
    return numbers if isinstance(numbers, tuple) else (numbers,)


def _is_known(module: nn.Module) -> bool:
    """Whether a module executes the same operations in every call. With recurrent ones, episodes determine the operations."""
    return type(module).__module__.startswith(KNOWN_MODULES) and not isinstance(module, nn.RNNBase | nn.RNNCellBase)


class _Found:
    """The networks, the optimisers and all other values among the attributes of an algorithm and of its helpers."""

    def __init__(self, algorithm: object, counters: tuple[str, ...]) -> None:
        self.networks: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.has_train_mode = False
        self._values: list[object] = []
        self._seen: set[int] = set()
        self._search(algorithm, counters)

    def _search(self, holder: object, counters: tuple[str, ...]) -> None:
        self._seen.add(id(holder))
        for name, value in getattr(holder, "__dict__", {}).items():
            if name in counters or id(value) in self._seen or isinstance(value, GraphedUpdate):
                continue
            if isinstance(value, nn.Module):
                self._seen.add(id(value))
                self.networks.append(value)
                self.has_train_mode |= getattr(value, "has_train_mode", False)
            elif type(value).__module__.startswith(HELPERS):
                self._search(value, counters)
            else:
                if isinstance(value, torch.optim.Optimizer):
                    self.optimizers.append(value)
                self.has_train_mode |= name == "has_train_mode" and bool(value)
                self._values.append(value)

    def state(self) -> Iterator[object]:
        """Everything that a capture depends on: tensors as their addresses."""
        for value in self._values:
            yield value.data_ptr() if isinstance(value, Tensor) else value
        for network in self.networks:
            for parameter in network.parameters():
                yield parameter.data_ptr()
                yield None if parameter.grad is None else parameter.grad.data_ptr()
                yield parameter.requires_grad
            yield from map(Tensor.data_ptr, network.buffers())
        for optimizer in self.optimizers:
            for moments in optimizer.state.values():
                yield from (value.data_ptr() for value in moments.values() if isinstance(value, Tensor))


def _equal(one: object, other: object) -> bool:
    """Numbers and texts by value, other objects by identity."""
    return one is other or (type(one) is type(other) and isinstance(one, int | float | str) and one == other)


def graphs_of(
    step: Callable[..., ResultT], algorithm: object, counters: tuple[str, ...]
) -> Callable[..., ResultT] | None:
    """Return the step, replayed as CUDA graphs; None if the algorithm has no network on a GPU, or other kernels were chosen."""
    found = _Found(algorithm, counters)
    on_gpu = any(parameter.is_cuda for network in found.networks for parameter in network.parameters())
    networks = getattr(getattr(algorithm, "config", None), "policy_kwargs", None)
    if not on_gpu or getattr(networks, "kernel", "auto") != "auto":
        return None
    return GraphedUpdate(step, algorithm, counters)
