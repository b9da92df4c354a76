"""Matrix products by oneDNN equal those of torch. The tests use oneDNN on processors where rlsdk does not choose it too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlsdk.kernels.factory import sequential
from rlsdk.networks import EnsembleMLP, flatten_parameters
from rlsdk_kernels import backends, layer_products
from rlsdk_kernels.backends import TORCH
from rlsdk_kernels.dense_kernel import DenseKernel

SIZES = st.integers(1, 40)
pytestmark = pytest.mark.skipif(not backends.has_onednn(), reason="this build of torch has no oneDNN")


@pytest.fixture(autouse=True, scope="module")
def chosen() -> Iterator[None]:
    """Make rlsdk use oneDNN for products of any size."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AHEAD": True, "WORTH": 1, "ROWS": 1, "SUMMED": 1}.items():
            patch.setattr(backends, name, value)
        yield


def laid(rows: int, columns: int, turned: bool) -> Tensor:
    """A random matrix [rows, columns], stored by columns if `turned`, else by rows."""
    return torch.randn(columns, rows).mT if turned else torch.randn(rows, columns)


@settings(max_examples=80, deadline=None)
@given(n=SIZES, k=SIZES, m=SIZES, turned=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 99))
def test_products_equal_torchs(n: int, k: int, m: int, turned: tuple[bool, bool], seed: int) -> None:
    torch.manual_seed(seed)
    left, right, bias = laid(n, k, turned[0]), laid(k, m, turned[1]), torch.randn(1, m)
    assert backends.is_quick(left, right)
    expected = (left.double() @ right.double()).float()
    assert torch.allclose(backends.product(left, right), expected, atol=1e-4)
    out = torch.full((n, m), np.nan)
    assert backends.product(left, right, out=out) is out
    assert torch.allclose(out, expected, atol=1e-4)
    assert torch.allclose(backends.affine(left, right, bias), expected + bias, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(
    widths=st.lists(st.integers(1, 12), min_size=2, max_size=4), rows=st.integers(1, 9), members=st.sampled_from([1, 3])
)
def test_members_one_after_another_equal_autograd(widths: list[int], rows: int, members: int) -> None:
    network = EnsembleMLP(members, widths[0], widths[1:-1], widths[-1], "relu").double()
    flatten_parameters(network.parameters())
    kernel = DenseKernel(list(network.layers), TORCH)
    x = torch.randn(rows, widths[0], dtype=torch.float64, requires_grad=True)
    outputs = network(x)
    found, trace = kernel.forward(x.detach())
    assert isinstance(trace[0], list), "run apart"
    assert torch.allclose(found, outputs, atol=1e-12)
    assert torch.equal(kernel(x.detach()), found)
    grad, direction = torch.randn_like(outputs), [torch.randn_like(p) for p in kernel.parameters]
    expected = torch.autograd.grad(outputs, [x, *kernel.parameters], grad)
    assert torch.allclose(kernel.input_grad(trace, grad, kernel.gradients()).sum(0), expected[0], atol=1e-10)
    for parameter, gradient in zip(kernel.parameters, expected[1:], strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-10)
    inner = sum(float((d * g).sum()) for d, g in zip(direction, expected[1:], strict=True))
    assert float((kernel.jvp(trace, direction) * grad).sum()) == pytest.approx(inner, abs=1e-8)


def test_layers_with_a_graph_differentiate_twice() -> None:
    torch.manual_seed(0)
    modules, x = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(4, 5, requires_grad=True)
    inputs = [x, *modules.parameters()]
    direction = [torch.randn_like(p) for p in inputs]

    def derivatives(outputs: Tensor) -> list[Tensor]:
        first = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)
        along = sum((g * d).sum() for g, d in zip(first, direction, strict=True))
        return [outputs, *first, *torch.autograd.grad(along, inputs)]  # type: ignore[arg-type]

    for ours, theirs in zip(derivatives(sequential(modules, x)), derivatives(modules(x)), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.kernels("which product is chosen")
def test_few_rows_without_a_graph_go_through_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "AHEAD", False)
    monkeypatch.setattr(layer_products, "LARGE", 1)
    modules, x, asked = nn.Sequential(nn.Linear(6, 3)), torch.randn(1, 6), []
    monkeypatch.setattr(layer_products.np, "matmul", lambda *of: asked.append(of) or np.dot(*of))
    with torch.no_grad():
        assert torch.allclose(sequential(modules, x), modules(x), atol=1e-6)
    assert len(asked) == 1
    sequential(modules, x)  # builds a graph
    assert len(asked) == 1


def test_hooks_and_other_layers_are_kept() -> None:
    seen: list[str] = []
    hooked = nn.Linear(3, 3)
    hooked.register_forward_hook(lambda *_: seen.append("hook"))

    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2.0 * super().forward(input)

    modules, x = [hooked, Doubled(3, 3), nn.Linear(3, 2, bias=False), nn.ReLU()], torch.randn(4, 3)
    assert torch.equal(sequential(modules, x), nn.Sequential(*modules)(x))
    assert seen == ["hook", "hook"]


def test_transforms_of_torch_see_its_own_layers() -> None:
    torch.manual_seed(0)
    modules, x = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(4, 5)

    def transformed(network: Any) -> list[Tensor]:
        def total(weight: Tensor, row: Tensor) -> Tensor:
            with torch.nn.utils.stateless._reparametrize_module(modules, {"0.weight": weight}):
                return network(row.unsqueeze(0)).square().sum()  # type: ignore[no-any-return]

        weight = modules[0].weight.detach()
        per_row = torch.func.vmap(torch.func.grad(total), in_dims=(None, 0))(weight, x)
        return [per_row, *torch.func.jvp(network, (x,), (torch.ones_like(x),))]

    for ours, theirs in zip(transformed(partial(sequential, modules)), transformed(modules), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_what_is_exported_runs_on_any_processor() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return sequential(self.layers, x)

    program = torch.export.export(Layers(), (torch.randn(2, 3),))
    assert "mkldnn" not in str(program.graph)
    assert "linear" in str(program.graph)
    traced = torch.jit.trace(Layers(), torch.randn(2, 3))  # type: ignore[no-untyped-call]
    assert "mkldnn" not in str(traced.inlined_graph)
