"""Replays updates as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rlsdk import tree
from rlsdk.kernels import Structure, function_modes
from rlsdk_kernels.cuda_graphs import Capture, Captures, addresses, captured, is_known, signature, tables_of

Numbers = float | tuple[float | None, ...]
ResultT = TypeVar("ResultT")
HELPERS = "rlsdk.updates."
"""The package whose objects are searched for networks and optimisers, if the algorithm holds them."""


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
        self._addresses, self._values = list[object](), list[object]()
        self.captures: Captures[ResultT] = Captures()

    def __call__(self, inputs: object, numbers: Numbers, *choices: Hashable) -> ResultT:
        """Return the result of the step; see `rlsdk.kernels.graphed` for the arguments."""
        if any(isinstance(choice, float) for choice in choices) or not self._may_replay():
            return self._step(self._algorithm, inputs, numbers, *choices)
        given = _listed(numbers)
        key = (choices, signature(inputs), *(number is None for number in given))
        capture = self.captures.get(key, lambda: self._capture(inputs, numbers, choices))
        if capture is None:
            return self._step(self._algorithm, inputs, numbers, *choices)
        for optimizer in self._optimizers:
            optimizer.param_groups[0]["lr"] = given[0]
        return capture.replay(tree.leaves(inputs), (number for number in given if number is not None))

    def _may_replay(self) -> bool:
        """Whether a capture does what the step does now. Captures of an earlier state of the algorithm are dropped."""
        found = _Found(self._algorithm, self._counters)
        if found.networks != self._networks or self._structure.changed():
            self._networks, self._structure = found.networks, Structure(*found.networks)
            self._structure.changed()
            self._known = all(_is_steady(module) for network in found.networks for module in network.modules())
            self._tables = tables_of(found.networks)
        self._optimizers = found.optimizers
        places = [*addresses(self._tables), *_training(self._tables), *_moments(found.optimizers)]
        same = len(found.values) == len(self._values) and all(map(_equal, found.values, self._values))
        if not same or places != self._addresses:
            self._addresses, self._values, self.captures = places, found.values, Captures()
        adam = all(
            type(optimizer) is torch.optim.Adam and len(optimizer.param_groups) == 1 for optimizer in found.optimizers
        )
        steady = self._known and not found.has_train_mode and not self._structure.hooked
        return adam and steady and not function_modes()

    def _capture(self, inputs: object, numbers: Numbers, choices: tuple[Hashable, ...]) -> Capture[ResultT]:
        """Raises RuntimeError if the step does something that a graph cannot do."""
        own = tree.map_tensors(Tensor.clone, inputs)
        leaves = tree.leaves(own)
        device = leaves[0].device
        tensors = [None if number is None else torch.full((), number, device=device) for number in _listed(numbers)]
        argument = tuple(tensors) if isinstance(numbers, tuple) else tensors[0]
        used = [tensor for tensor in tensors if tensor is not None]
        return captured(lambda: _joined(self._step(self._algorithm, own, argument, *choices)), leaves, used)

    def __getstate__(self) -> dict[str, object]:
        """A copy makes its own captures."""
        return {"step": self._step, "algorithm": self._algorithm, "counters": self._counters}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _joined(node: ResultT) -> tuple[list[Tensor], Callable[[list[Tensor]], ResultT]]:
    """All numbers of a tree of float tensors, as one tensor [D], which is copied faster than each leaf; and the inverse."""
    layout = tree.layout(node)
    leaves = list(layout.pick(node))
    shapes = [leaf.shape for leaf in leaves]
    sizes = [shape.numel() for shape in shapes]

    def build(values: list[Tensor]) -> ResultT:
        parts = torch.split(values[0], sizes)
        built: ResultT = layout.build(part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        return built

    return [torch.cat([leaf.reshape(-1) for leaf in leaves])], build


def _listed(numbers: Numbers) -> tuple[float | None, ...]:
    return numbers if isinstance(numbers, tuple) else (numbers,)


def _is_steady(module: nn.Module) -> bool:
    """Whether a module executes the same operations in every update. With recurrent ones, episodes determine the operations."""
    return is_known(module) and not isinstance(module, nn.RNNBase | nn.RNNCellBase)


class _Found:
    """The networks, the optimisers and all other values among the attributes of an algorithm and of its helpers.

    Of a tensor, the value is its address.
    """

    def __init__(self, algorithm: object, counters: tuple[str, ...]) -> None:
        self.networks: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.has_train_mode = False
        self.values: list[object] = []
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
                self.values.append(value.data_ptr() if isinstance(value, Tensor) else value)


def _training(tables: list[dict[str, Tensor | None]]) -> Iterator[object]:
    """Whether each parameter [..] is trained, and the address of its gradient."""
    for table in tables:
        for value in table.values():
            if isinstance(value, nn.Parameter):
                yield value.requires_grad
                yield None if value.grad is None else value.grad.data_ptr()


def _moments(optimizers: list[torch.optim.Optimizer]) -> Iterator[int]:
    """The addresses of the optimisers' state."""
    for optimizer in optimizers:
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
