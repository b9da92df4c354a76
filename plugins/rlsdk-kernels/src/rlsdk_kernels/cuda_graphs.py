"""Captures the operations of a function as CUDA graphs. On a GPU, launching the operations of a small network takes several
times as long as computing them. A graph launches all of them at once.

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk import tree
from rlsdk.kernels import Structure, function_modes
from rlsdk.records import Observation
from rlsdk_kernels.choice import Acts, AnyAct

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


# Replays the acting of a policy as a CUDA graph.


class GraphedActing:
    """Calls a function that acts, and replays it once it was called a few times with observations on a GPU.

    The function is captured again when parameters have other memory, or when an attribute of the network has changed.
    """

    def __init__(self, act: Acts, network: nn.Module) -> None:
        """`network` computes the actions. Its modules stay the same, and none of them has hooks."""
        self._act, self._network = act, network
        self._tables = tables_of([network])
        self._addresses: list[int] = []
        self._attributes: list[object] = []
        self.captures: Captures[AnyAct] = Captures()

    def __call__(self, observation: Observation, carry: object, deterministic: bool, generator: Generator) -> AnyAct:
        if not self._may_replay(observation):
            return self._act(observation, carry, deterministic, generator)
        self._forget_if_changed()
        inputs = observation, carry
        key = signature(inputs), None if deterministic else generator
        capture = self.captures.get(key, lambda: self._capture(inputs, deterministic, generator))
        if capture is None:
            return self._act(observation, carry, deterministic, generator)
        return capture.replay(tree.leaves(inputs))

    @staticmethod
    def _may_replay(observation: Observation) -> bool:
        return observation.is_first.is_cuda and not function_modes() and not torch.is_inference_mode_enabled()

    def _forget_if_changed(self) -> None:
        found, attributes = list(addresses(self._tables)), list(vars(self._network).values())
        if not same_objects(attributes, self._attributes) or found != self._addresses:
            self._addresses, self._attributes, self.captures = found, attributes, Captures()

    def _capture(
        self, inputs: tuple[Observation, object], deterministic: bool, generator: Generator
    ) -> Capture[AnyAct]:
        """Raises RuntimeError if the function does something that a graph cannot do."""
        observation, carry = own = tree.map_tensors(Tensor.clone, inputs)
        leaves = tree.leaves(own)
        # a failed capture spoils its generator, so the first one has a generator of its own
        for source in (Generator(leaves[0].device), generator):
            act = partial(self._act, observation, carry, deterministic, source)
            capture = captured(partial(_leaves_of, act), leaves, [], source)
        return capture


def _leaves_of(act: Callable[[], AnyAct]) -> tuple[list[Tensor], Callable[[list[Tensor]], AnyAct]]:
    """The tensors [..] of an act, and the function that builds acts of such tensors."""
    done = act()
    build = tree.layout(done).build
    return tree.leaves(done), lambda leaves: build(iter(leaves))


# Replays the step of environments that are written in torch as a CUDA graph.

InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")


class GraphedTransition(Generic[InputsT, KeptT, TransientT]):
    """Calls a function `step(inputs, generator)` that changes tensors in place, and replays it once it was called a few times
    with tensors on a GPU.

    It returns two trees of tensors; the next call may overwrite those of the second. It is captured again when an attribute of
    the environment has changed, or after `forget`. So it is never replayed if each call changes an attribute.
    """

    def __init__(
        self, step: Callable[[InputsT, Generator], tuple[KeptT, TransientT]], env: object, generator: Generator
    ) -> None:
        """`step` draws from its generator only. Its in-place changes are to tensors whose memory stays the same."""
        self._step, self._env, self._generator = step, env, generator
        self.captures: Captures[tuple[KeptT, TransientT]] = Captures()
        self._attributes = self._values()

    def __call__(self, inputs: InputsT) -> tuple[KeptT, TransientT]:
        """Return the result of the step for a tree of tensors `inputs` [..]."""
        if function_modes() or torch.is_inference_mode_enabled():
            return self._step(inputs, self._generator)
        attributes = self._values()
        if not same_objects(attributes, self._attributes):
            self._attributes = attributes
            self.forget()
        capture = self.captures.get(signature(inputs), lambda: self._capture(inputs))
        return self._step(inputs, self._generator) if capture is None else capture.replay(tree.leaves(inputs))

    def forget(self) -> None:
        """Capture the step again before it is replayed."""
        self.captures = Captures()

    def _values(self) -> list[object]:
        return list(getattr(self._env, "__dict__", {}).values())

    def _capture(self, inputs: InputsT) -> Capture[tuple[KeptT, TransientT]]:
        """Raises RuntimeError if the step does something that a graph cannot do."""
        own = tree.map_tensors(Tensor.clone, inputs)
        leaves = tree.leaves(own)
        # a failed capture spoils its generator, so the first one has a generator of its own
        for generator in (Generator(leaves[0].device), self._generator):
            capture = captured(partial(self._leaves_of, own, generator), leaves, [], generator)
        return capture

    def _leaves_of(
        self, inputs: InputsT, generator: Generator
    ) -> tuple[list[Tensor], Callable[[list[Tensor]], tuple[KeptT, TransientT]]]:
        kept, transient = self._step(inputs, generator)
        build = tree.layout(kept).build
        return tree.leaves(kept), lambda leaves: (build(iter(leaves)), transient)


# Replays updates as CUDA graphs.

Numbers = float | tuple[float | None, ...]
HELPERS = "rlsdk.updates."
"""The package whose objects are searched for networks and optimizers, if the algorithm holds them."""


class GraphedUpdate(Generic[ResultT]):
    """Calls the learning step of an algorithm, and replays it as a CUDA graph once it was called a few times.

    A graph repeats exactly the operations of its capture. So the step is captured again when an attribute of the algorithm
    has changed, and it runs as written where its Python code might act differently in each call: with modules or optimizers
    of other packages, or with hooks.
    """

    def __init__(self, step: Callable[..., ResultT], algorithm: object, counters: tuple[str, ...]) -> None:
        """`counters` are attributes that change in every update and that the step does not read."""
        self._step, self._algorithm, self._counters = step, algorithm, counters
        self._networks, self._structure = list[nn.Module](), Structure()
        self._addresses, self._values = list[object](), list[object]()
        self.captures: Captures[ResultT] = Captures()

    def __call__(self, inputs: object, numbers: Numbers, *choices: Hashable) -> ResultT:
        """Return the result of the step; see `rlsdk.kernels.factory.graphed` for the arguments."""
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
    """The networks, the optimizers and all other values among the attributes of an algorithm and of its helpers.

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
    """The addresses of the optimizers' state."""
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
