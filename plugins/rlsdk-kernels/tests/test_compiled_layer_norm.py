"""Dense networks with layer normalization in compiled code: outputs, gradients, acting, and what it leaves to torch."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlsdk.kernels import KernelChoice, kernels_off
from rlsdk.kernels.factory import compiled_off
from rlsdk.kernels.reference import Autograd
from rlsdk.networks import EnsembleMLP, Layers, flatten_parameters
from rlsdk.runtime import limited_threads
from rlsdk_kernels import choice as factory
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.dense_acting import DenseActing, GreedyActing
from rlsdk_kernels.dense_choice import can_be_compiled
from rlsdk_kernels.differentiable_dense import DifferentiableDense
from rlsdk_pqn import PQN
from tests.compiled_variants import RUNNABLE, needs_library

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.Identity]


def network(
    widths: list[int], activation: type[nn.Module] = nn.ReLU, normalized: tuple[bool, ...] = (True,)
) -> nn.Sequential:
    """A network in which hidden layer i is normalized if `normalized[i]`, counted in a circle. Parameters are random."""
    found = list[nn.Module]()
    for i, (inputs, width) in enumerate(pairwise(widths[:-1])):
        found.append(nn.Linear(inputs, width))
        if normalized[i % len(normalized)]:
            norm = nn.LayerNorm(width, eps=(1e-5, 1e-3)[i % 2])
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
            found.append(norm)
        found.append(activation())
    made = nn.Sequential(*found, nn.Linear(widths[-2], widths[-1]))
    flatten_parameters(list(made.parameters()))
    return made


def close(found: Tensor, expected: Tensor, largest: float | None = None) -> None:
    scale = float(expected.abs().max()) if largest is None else largest
    torch.testing.assert_close(found.double(), expected.double(), atol=2e-5 * scale + 1e-6, rtol=1e-4)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("variant", RUNNABLE, indirect=True)
def test_outputs_and_gradients(variant: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.sampled_from([2, 3, 5, 15, 16, 17, 33, 64, 80]), min_size=3, max_size=5),
        st.sampled_from(ACTIVATIONS),
        st.sampled_from([(True,), (True, False), (False, True, True)]),
        st.sampled_from([1, 2, 5, 64, 67]),
        st.integers(0, 999),
    )
    def check(
        widths: list[int], activation: type[nn.Module], normalized: tuple[bool, ...], rows: int, seed: int
    ) -> None:
        torch.manual_seed(seed)
        own = network(widths, activation, normalized)
        exact, x = copy.deepcopy(own).double(), 3.0 * torch.randn(rows, widths[0])
        entered = x.double().requires_grad_()
        outputs, before = entered, list[Tensor]()
        for module in exact:
            if isinstance(module, nn.LayerNorm):  # of two almost equal numbers, rounding decides
                assume(float(outputs.detach().var(-1, correction=0).min()) > 1e-3)
            before += [outputs] if type(module) is nn.ReLU else []
            outputs = module(outputs)
        assume(all(float(z.abs().min()) > 1e-4 for z in before))  # at the kink of ReLU too
        assert can_be_compiled(own)
        kernel = CompiledDense(own)
        found, trace = kernel.forward(x)
        close(found, outputs.detach())
        assert torch.equal(kernel(x), found)
        grad = torch.randn(found.shape)
        named = dict(exact.named_parameters())
        expected = torch.autograd.grad(outputs, [entered, *named.values()], grad.double())
        largest = max(float(each.abs().max()) for each in expected)
        close(kernel.input_grad(trace, grad, kernel.gradients()), expected[0], largest)
        close(kernel.input_grad(trace, grad), expected[0], largest)
        for parameter, wanted in zip(own.parameters(), expected[1:], strict=True):
            assert parameter.grad is not None
            close(parameter.grad, wanted, largest)

    check()


def test_many_rows_and_two_threads_give_the_same() -> None:
    torch.manual_seed(0)
    own = network([3, 128, 96, 2])
    kernel, x = CompiledDense(own), torch.randn(1300, 3)
    close(kernel(x), own(x).detach())

    def computed() -> list[Tensor]:
        outputs, trace = kernel.forward(x)
        kernel.backward(trace, torch.ones_like(outputs), kernel.gradients())
        return [outputs, *(p.grad.clone() for p in own.parameters() if p.grad is not None)]

    alone = computed()
    with limited_threads(2):
        assert all(map(torch.equal, alone, computed()))


def test_layers_are_differentiated_as_in_torch() -> None:
    torch.manual_seed(0)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network([4, 32, 16, 2])
            self.values = Layers(self, "body")

    own = Network()
    assert isinstance(own.values._kernel(), DifferentiableDense)
    x = torch.randn(7, 4, requires_grad=True)
    of_body = [x, *own.body.parameters()]
    expected = torch.autograd.grad(own.body(x).square().sum(), of_body)
    for one, two in zip(torch.autograd.grad(own.values(x).square().sum(), of_body), expected, strict=True):
        close(one, two)


def chosen(*modules: nn.Module, width: int = 8) -> object:
    reference = Autograd(nn.Sequential(*modules))
    found = factory.dense_network(list(modules), nn.Identity(), KernelChoice(width=width, rows=8), False, reference)
    return None if found is reference else found


def test_other_layers_are_left_to_torch() -> None:
    linear, norm, head = nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)
    assert isinstance(chosen(linear, norm, nn.ReLU(), head), CompiledDense)
    assert isinstance(chosen(linear, norm, head), CompiledDense)
    ensemble = list(EnsembleMLP(2, 3, [8], 1, "relu").layers)
    others = {
        "a last layer": (linear, nn.ReLU(), head, nn.LayerNorm(2)),
        "after the activation": (linear, nn.ReLU(), norm, head),
        "before all layers": (nn.LayerNorm(3), linear, nn.ReLU(), head),
        "twice": (linear, norm, nn.LayerNorm(8), nn.ReLU(), head),
        "without scale": (linear, nn.LayerNorm(8, elementwise_affine=False), nn.ReLU(), head),
        "without shift": (linear, nn.LayerNorm(8, bias=False), nn.ReLU(), head),
        "float64": tuple(module.double() for module in copy.deepcopy((linear, norm, nn.ReLU(), head))),
        "an ensemble": (ensemble[0], norm, *ensemble[1:]),
    }
    for what, modules in others.items():
        assert chosen(*modules) is None, what
    hooked = nn.LayerNorm(8)
    hooked.register_forward_hook(lambda *_: None)
    assert chosen(linear, hooked, nn.ReLU(), head) is None
    with compiled_off():
        assert chosen(linear, norm, nn.ReLU(), head) is None
    assert chosen(linear, norm, nn.ReLU(), head, width=4096) is None, "numpy and torch backends do not normalize"


@pytest.mark.parametrize("width", [16, 300])
def test_acting(width: int) -> None:
    torch.manual_seed(0)
    own = network([4, width, 3])
    choice, x = KernelChoice(width=width, rows=8), torch.randn(9, 4)
    acting = factory.dense_acting(list(own), nn.Identity(), choice, False, own)
    assert isinstance(acting, DenseActing)
    close(acting(x), own(x).detach())
    greedy = factory.greedy_acting(list(own), nn.Identity(), choice, False, 3, 1)
    assert isinstance(greedy, GreedyActing)
    assert torch.equal(greedy(x, None, torch.Generator()), own(x).argmax(-1))


def test_pqn_uses_it_and_learns_as_without_it() -> None:
    # the default eps of RAdam would divide gradients that are rounding errors by their own size
    networks = {"net_arch": [24, 16], "optimizer_kwargs": {"eps": 1e-3}}
    small: dict[str, Any] = {"seed": 0, "n_steps": 16, "batch_size": 16, "policy_kwargs": networks}
    model = PQN("MlpPolicy", "CartPole-v1", **small).learn(96)
    policy: Any = model.policy
    assert isinstance(policy._kernels()[1], CompiledDense)
    with kernels_off():
        plain = PQN("MlpPolicy", "CartPole-v1", **small).learn(96)
    for one, two in zip(model.policy.parameters(), plain.policy.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
