"""Selects the kernel that evaluates dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from rlsdk.kernels import is_dense, is_hooked, is_linear
from rlsdk_kernels.backends import BACKENDS, COMPILED, NUMPY_WIDTH, TORCH
from rlsdk_kernels.compiled_dense import CompiledDense, norms_of, without_norms
from rlsdk_kernels.compiled_library import may_compile
from rlsdk_kernels.dense_kernel import DenseKernel, DenseLayers
from rlsdk_kernels.numpy_backend import NUMPY, Backend

SAMPLING_WIDTH = 256
"""The largest width of layers that are evaluated by the same compiled call that samples actions."""


def can_be_compiled(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are dense layers of float32 on the CPU, all of one network or of one ensemble, without hooks.

    Layers of one network, except the last, may have layer normalization.
    """
    normalized = list(modules)
    chosen = without_norms(normalized)
    if not is_dense(chosen) or any(map(is_hooked, normalized)) or not _norms_fit(normalized):
        return False
    linear = [module for module in chosen if is_linear(module)]
    parameters = [cast("nn.Parameter", p) for module in linear for p in (module.weight, module.bias)]
    weights = [weight.shape for weight in parameters[::2]]
    members = weights[0][0] if len(weights[0]) == 3 else 0
    sizes = [shape[-2:] if members else shape[:-3:-1] for shape in weights]  # (inputs, outputs) of each layer
    stacked = (members,) if members else ()
    return (
        all(p.dtype is torch.float32 and p.is_cpu for p in parameters)
        and all(shape[:-2] == stacked and len(shape) > 1 for shape in weights)
        and [bias.shape for bias in parameters[1::2]] == [(members, 1, o) if members else (o,) for _, o in sizes]
        and all(one[1] == two[0] for one, two in pairwise(sizes))
    )


def _norms_fit(modules: Sequence[nn.Module]) -> bool:
    """Whether all layer normalizations follow linear layers of one network, not the last, and have scale and shift."""
    linear = [module for module in modules if is_linear(module)]
    pairs = [(norm, layer) for norm, layer in zip(norms_of(modules), linear, strict=True) if norm is not None]
    if len(pairs) < len(modules) - len(without_norms(modules)) or any(layer is linear[-1] for _, layer in pairs):
        return False
    own = [(p, cast("nn.Parameter", layer.bias).shape) for norm, layer in pairs for p in (norm.weight, norm.bias)]
    return all(isinstance(p, nn.Parameter) and p.is_cpu and p.dtype is torch.float32 and p.shape == s for p, s in own)


def dense_of(modules: Iterable[nn.Module], name: str, member: int | None = None) -> DenseLayers:
    """Return the dense kernel with the backend of this name. Numpy or torch evaluates what compiled code cannot.

    `member` is the index of one member of an ensemble, to evaluate it alone.
    """
    chosen = list(modules)
    if name == COMPILED.name and can_be_compiled(chosen):
        return CompiledDense(chosen, member)
    return DenseKernel(chosen, without_compiled(chosen) if name == COMPILED.name else BACKENDS[name], member)


def without_compiled(modules: Sequence[nn.Module]) -> Backend:
    """The fastest backend for layers that compiled code cannot evaluate: numpy for narrow ones, torch for others."""
    return NUMPY if widest(modules) <= NUMPY_WIDTH else TORCH


def widest(modules: Iterable[nn.Module]) -> int:
    """The largest number of outputs of linear layers."""
    return max(cast("nn.Parameter", module.bias).shape[-1] for module in modules if is_linear(module))


def sampling_dense(modules: Iterable[nn.Module]) -> CompiledDense | None:
    """Return the network for calls that also sample actions; None: compiled code cannot evaluate it, or it is too wide.

    Networks wider than those of `acting_dense` are evaluated as fast as in numpy, and sampled faster.
    """
    chosen = list(modules)
    if not may_compile() or not can_be_compiled(chosen):
        return None
    network = CompiledDense(chosen)
    return network if network.widest <= SAMPLING_WIDTH else None


def acting_dense(modules: Iterable[nn.Module]) -> DenseLayers:
    """Return the fastest kernel for acting with few rows. Numpy is as fast for wide layers, and does not normalize."""
    chosen = list(modules)
    narrow = all(max(parameter.shape) <= NUMPY_WIDTH for module in chosen for parameter in module.parameters())
    normalized = not is_dense(chosen)
    return dense_of(chosen, COMPILED.name if (narrow or normalized) and may_compile() else NUMPY.name)
