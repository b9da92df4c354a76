"""Records the inputs and outputs of layers while a network is evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

Layer = nn.Linear | nn.Conv2d
Calls = dict[nn.Module, list[tuple[Tensor, GradientEdge]]]
"""Layer -> (inputs, graph edge of the outputs) for each of its calls."""


def layers_of(network: nn.Module) -> dict[str, Layer]:
    """The layers with Kronecker factors, by name: dense layers and convolutions with one group that share no parameters."""
    owners = Counter(id(p) for module in network.modules() for p in module.parameters(recurse=False))
    return {
        name: module
        for name, module in network.named_modules()
        if _is_plain(module) and all(owners[id(p)] == 1 for p in module.parameters(recurse=False))
    }


def _is_plain(module: nn.Module) -> TypeGuard[Layer]:
    """Whether a module is exactly such a layer. Derived classes, as torch's parametrized layers, may compute something else."""
    if not isinstance(getattr(module, "weight", None), nn.Parameter):
        return False
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) is nn.Linear


@contextmanager
def recorded(layers: Iterable[Layer]) -> Iterator[Calls]:
    """A context manager that records the calls of those `layers` whose parameters are all trained."""
    calls: Calls = {}

    def note(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if output.requires_grad:  # the edge, because a later layer may change the outputs in place
            calls.setdefault(layer, []).append((inputs[0].detach(), get_gradient_edge(output)))

    trained = [layer for layer in layers if all(p.requires_grad for p in layer.parameters(recurse=False))]
    handles = [layer.register_forward_hook(note) for layer in trained]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
