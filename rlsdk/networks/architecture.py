"""Describes the layers of networks as text, so that networks can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from torch import Tensor, nn


def architecture(*networks: nn.Module) -> list[str]:
    """Describe classes with their arguments, names and shapes. Networks with equal descriptions can exchange weights."""
    found = []
    for network in networks:
        for name, module in network.named_modules():
            kind = type(module)
            arguments = module.extra_repr() if kind.__module__.startswith("torch.nn.modules.") else ""
            found.append(f"{name}: {kind.__module__}.{kind.__qualname__}({arguments})")
            found += [f"{name}.{own} {_kind_of(value)}" for own, value in _tensors(module)]
    return found


def _tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))


def _kind_of(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
