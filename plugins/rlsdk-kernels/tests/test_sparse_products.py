"""Compiled products leave out factors that are 0, if there are many, and return the same numbers as other products."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Generator, Tensor, nn

from rlsdk.networks import flatten_parameters
from rlsdk_kernels.compiled_dense import CompiledDense
from tests.compiled_variants import needs_library
from tests.tables import in_one_test

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels"), pytest.mark.usefixtures("variant")]
DENSITIES = [0.0, 0.03, 0.4, 0.55, 1.0]
"""Shares of numbers that are not 0. With the last one, nothing is left out."""


def with_zeros(shape: tuple[int, int], density: float, generator: Generator, *, whole: bool) -> Tensor:
    """Return numbers between -2 and 2 of which the share `density` is not 0."""
    values = (
        torch.randint(1, 3, shape, generator=generator).float()
        if whole
        else torch.rand(shape, generator=generator) + 0.5
    )
    signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return values * signs * (torch.rand(shape, generator=generator) < density)


def network_of(widths: list[int], activation: type[nn.Module], generator: Generator) -> nn.Sequential:
    """Return a network whose weights and biases are -1, 0 or 1."""
    pairs = itertools.pairwise(widths)
    network = nn.Sequential(*[module for pair in pairs for module in (nn.Linear(*pair), activation())][:-1])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    flatten_parameters(list(network.parameters()))
    return network


@in_one_test
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Identity])
@pytest.mark.parametrize(
    "sizes", [(40, 33, 96), (77, 91, 133), (64, 256, 256), (257, 65, 256), (600, 130, 300), (300, 256, 515)]
)
def test_outputs_and_gradients(sizes: tuple[int, int, int], activation: type[nn.Module], density: float) -> None:
    """With small whole numbers, sums are exact. tanh of their sums is almost always 1 or -1, so they are divided by 16."""
    rows, inner, columns = sizes
    generator, whole = Generator().manual_seed(rows), activation is not nn.Tanh
    network = network_of([inner, columns, 100], activation, generator)
    if not whole:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.div_(16)
    x = with_zeros((rows, inner), density, generator, whole=whole)
    grad = with_zeros((rows, 100), density, generator, whole=whole)
    kernel = CompiledDense(list(network))
    outputs, trace = kernel.forward(x)
    input_grad = kernel.input_grad(trace, grad, kernel.gradients())
    exact, entered = copy.deepcopy(network).double(), x.double().requires_grad_()
    expected_outputs = exact(entered)
    expected = torch.autograd.grad(expected_outputs, [entered, *exact.parameters()], grad.double())
    gradients = [parameter.grad for parameter in kernel.parameters]
    for one, two in zip([outputs, input_grad, *gradients], [expected_outputs.detach(), *expected], strict=True):
        assert one is not None
        if whole:
            assert torch.equal(one.double(), two)
        else:
            torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=1e-4)


@in_one_test
@pytest.mark.parametrize("sizes", [(64, 256, 256), (300, 130, 133), (77, 400, 512)])
def test_rounding_is_that_of_other_products(sizes: tuple[int, int, int]) -> None:
    """The same rows are computed alone, and together with rows without zeros, after which nothing is left out."""
    rows, inner, columns = sizes
    generator = Generator().manual_seed(0)
    kernel = CompiledDense([nn.Linear(inner, columns)])
    for parameter in kernel.parameters:
        parameter.grad = torch.zeros_like(parameter)
    sparse = with_zeros((rows, inner), 0.3, generator, whole=False)
    both = torch.cat([sparse, with_zeros((4 * rows, inner), 1.0, generator, whole=False)])
    assert torch.equal(kernel.forward(sparse)[0], kernel.forward(both)[0][:rows])


def test_rounding_of_gradients_is_that_of_other_products() -> None:
    """A further output with gradients everywhere makes no difference to the others."""
    generator = Generator().manual_seed(0)
    x = torch.randn(200, 256, generator=generator)
    grad = with_zeros((200, 40), 0.3, generator, whole=False)
    found = []
    for further in (0, 160):
        kernel = CompiledDense([nn.Linear(256, 40 + further)])
        for parameter in kernel.parameters:
            parameter.grad = torch.zeros_like(parameter)
        outputs, trace = kernel.forward(x)
        kernel.backward(trace, torch.cat([grad, outputs[:, 40:]], 1), kernel.gradients())
        weight_grad = kernel.parameters[0].grad
        assert weight_grad is not None
        found.append(weight_grad[:40])
    assert torch.equal(*found)


def test_numbers_that_are_not_finite_are_not_left_out() -> None:
    kernel = CompiledDense([nn.Linear(256, 256)])
    x = torch.zeros(64, 256)
    x[3, 7], x[40, 255], x[63, 0] = float("nan"), float("inf"), -float("inf")
    finite = kernel.forward(x)[0].isfinite()
    assert not finite[[3, 40, 63]].any()
    assert finite.sum() == 61 * 256
