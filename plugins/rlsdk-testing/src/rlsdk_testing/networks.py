"""Finds the networks, optimizers and trained tensors of an agent by searching the attributes of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rlsdk.agent import Agent
from rlsdk.updates import FlatOptimizer

DEPTH = 8
"""The depth to which attributes, entries and items are searched."""
LEAVES = (
    str,
    bytes,
    int,
    float,
    complex,
    torch.Generator,
    torch.device,
    torch.dtype,
    FunctionType,
    BuiltinFunctionType,
)


class Found:
    """The modules, optimizers and tensors that are reachable from the parts of an agent.

    The parts are the policy, the algorithm, the behavior policy, the plan and `Parts.states`.
    """

    def __init__(self, agent: Agent) -> None:
        self.modules: dict[str, nn.Module] = {}
        """Path -> module; modules inside other modules are not listed."""
        self.optimizers: dict[str, Optimizer] = {}
        self.tensors: dict[str, Tensor] = {}
        """Path -> leaf tensor that requires gradients and belongs to no module."""
        self.numbers: dict[str, Tensor] = {}
        """Path -> other float tensor of the algorithm, such as a running mean, that belongs to no module."""
        self.counts: dict[str, int] = {}
        """Path -> whole number of the algorithm, such as the number of its updates."""
        self._seen: dict[int, object] = {}
        parts = agent.parts
        roots = {"policy": parts.policy, "algorithm": parts.algorithm, "behavior": parts.behavior, "plan": parts.plan}
        for name, part in {**roots, **parts.states}.items():
            self._look(name, part, 0)

    def parameters(self) -> dict[str, Tensor]:
        """Return path -> tensor [..] for every tensor that requires gradients; tensors that share memory are listed once."""
        found = dict[str, Tensor]()
        inside = ((f"{path}.{name}", each) for path, m in self.modules.items() for name, each in m.named_parameters())
        for path, tensor in (*inside, *self.tensors.items()):
            if tensor.requires_grad and not any(overlaps(tensor, known) for known in found.values()):
                found[path] = tensor
        return found

    def optimized(self, tensor: Tensor) -> bool:
        """Return whether an optimizer trains the tensor [..], or a flat vector [D] that contains it."""
        return any(overlaps(tensor, each) for optimizer in self.optimizers.values() for each in held(optimizer))

    def copies(self) -> dict[str, tuple[nn.Module, nn.Module]]:
        """Return path -> (network that no optimizer trains, the trained network that it is equal to).

        Only the outermost such networks are listed. In an agent that has not learned yet, they are target networks and copies
        that choose actions.
        """
        every = {
            f"{path}.{name}".rstrip("."): m for path, whole in self.modules.items() for name, m in whole.named_modules()
        }
        every = {path: module for path, module in every.items() if any(True for _ in module.parameters())}
        still = {path for path, module in every.items() if not any(map(self.optimized, module.parameters()))}
        largest = {path for path in still if path.rpartition(".")[0] not in still}
        return {
            path: (every[path], source)
            for path in largest
            for source in [next((m for name, m in every.items() if name not in still and equal(every[path], m)), None)]
            if source is not None
        }

    def _look(self, path: str, value: object, depth: int) -> None:
        if type(value) is int and path.startswith("algorithm."):  # no bool; equal numbers are one object
            self.counts[path] = value
        if value is None or isinstance(value, (*LEAVES, type, ModuleType)) or depth > DEPTH or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            if value.requires_grad and value.is_leaf:
                self.tensors[path] = value
            elif value.is_floating_point() and path.startswith("algorithm.") and not value.requires_grad:
                self.numbers[path] = value
        elif isinstance(value, Optimizer | FlatOptimizer):
            self.optimizers[path] = value if isinstance(value, Optimizer) else value.optimizer
        elif isinstance(value, MethodType):
            self._look(path, value.__self__, depth + 1)
        else:
            if isinstance(value, nn.Module):
                self.modules[path] = value
                self._seen.update((id(each), each) for each in (*value.modules(), *value.parameters()))
            for name, child in _children(value):
                self._look(f"{path}.{name}", child, depth + 1)


def held(optimizer: Optimizer) -> list[Tensor]:
    """Return the tensors [..] that an optimizer trains."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def equal(one: nn.Module, two: nn.Module) -> bool:
    """Return whether two networks have parameters of the same shapes and values."""
    pairs = list(zip(one.parameters(), two.parameters(), strict=False))
    same = len(list(one.parameters())) == len(list(two.parameters()))
    return same and all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def _children(value: object) -> Iterator[tuple[str, object]]:
    """Yield (name, object) for the attributes of an object, or the entries or items of a container."""
    if isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(place), each) for place, each in enumerate(value))
    elif not type(value).__module__.startswith(("torch", "numpy", "collections", "gymnasium", "threading")):
        yield from list(getattr(value, "__dict__", {}).items())
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        yield from ((name, getattr(value, name)) for name in slots if isinstance(name, str) and hasattr(value, name))


def overlaps(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors [..] share memory."""
    if one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr():
        return False
    (start, end), (other, last) = ((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in (one, two))
    return start < last and other < end
