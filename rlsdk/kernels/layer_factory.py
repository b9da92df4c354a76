"""Selects kernels for layers whose outputs autograd differentiates. Each function returns `reference` if no kernel fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from torch import Tensor, nn

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.differentiable import Differentiable
from rlsdk.kernels.factory import NUMPY_SIZE, backend_name, has_avx2
from rlsdk.kernels.protocol import KernelChoice
from rlsdk.kernels.switch import is_on, may_use


def differentiable_dense(modules: Sequence[nn.Module], hooked: bool, reference: Differentiable) -> Differentiable:
    """Return the kernel for layers that are differentiated as torch's modules are, [N, I] -> [N, O]."""
    shapes = [parameter.shape for module in modules for parameter in module.parameters()]
    is_ensemble = any(len(shape) > 2 for shape in shapes)
    width = max([1, *(size for shape in shapes for size in shape)])
    if (
        hooked
        or is_ensemble
        or backend_name(KernelChoice(width=width)) != "compiled"
        or not may_use("differentiable_dense")
    ):
        return reference
    from rlsdk.kernels.dense_choice import can_be_compiled
    from rlsdk.kernels.differentiable_dense import DifferentiableDense

    most_rows = None if has_avx2() else NUMPY_SIZE // width
    return DifferentiableDense(modules, most_rows, reference) if can_be_compiled(modules) else reference


def convolutions(
    modules: Sequence[nn.Module], scale: float, hooked: bool, reference: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return the kernel that converts pixels [N, channels, height, width] to features [N, F]; pixels are multiplied by
    `scale`."""
    if hooked or not may_use("convolutions"):
        return reference
    from rlsdk.kernels.convolutions import ConvolutionKernel, is_convolutional

    return ConvolutionKernel(modules, scale, reference) if is_convolutional(modules) else reference


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Call modules one after another, [N, I] -> [N, O]. If autograd is on, the result has a graph."""
    return _sequential()(modules, x) if is_on() else by_torch.sequential(modules, x)


@cache
def _sequential() -> Callable[[Iterable[nn.Module], Tensor], Tensor]:
    if not may_use("layer_products"):
        return by_torch.sequential
    from rlsdk.kernels.layer_products import sequential as by_kernel

    return by_kernel
