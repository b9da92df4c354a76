"""`rlsdk.networks.Layers`: outputs and gradients equal those of torch's modules, however the network is built or changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels import kernels_off
from rlsdk.networks import EnsembleMLP, Layers, mlp
from rlsdk_kernels import choice
from tests.compiled_variants import needs_library

Widths = tuple[int, ...]


class Network(nn.Module):
    def __init__(self, widths: Widths = (4, 8, 8, 3), activation_fn: str = "tanh") -> None:
        super().__init__()
        inputs, *hidden, outputs = widths
        self.body, self.head = mlp(inputs, hidden, activation_fn), nn.Linear((inputs, *hidden)[-1], outputs)
        self.other = nn.Linear(1, 1)
        self.layers = Layers(self, "body", "head")

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def by_modules(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


def gradients(network: Network, outputs: Tensor, grad: Tensor, x: Tensor) -> list[Tensor]:
    wanted = [x, *network.body.parameters(), *network.head.parameters()]
    return list(torch.autograd.grad(outputs, [p for p in wanted if p.requires_grad], grad))


def close(found: Tensor, expected: Tensor) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected.to(found.dtype), atol=3e-6 * scale + 1e-7, rtol=1e-5)


def kernel_of(layers: Layers) -> str:
    return layers._kernel().__class__.__name__


def require_like_modules(network: Network, x: Tensor) -> None:
    """Compare outputs and all gradients with those of a copy in float64, in both ways of computing them."""
    grad = torch.randn(network.by_modules(x).shape)
    exact, entered = copy.deepcopy(network).double(), x.detach().double().requires_grad_()
    expected = exact.by_modules(entered)
    exact_grads = gradients(exact, expected, grad.double(), entered)
    leaf = x.detach().clone().requires_grad_()
    found = network(leaf)
    close(found, expected)
    for one, two in zip(gradients(network, found, grad, leaf), exact_grads, strict=True):
        close(one, two)
    with torch.no_grad():
        close(network(x), expected.detach())
    network.zero_grad(set_to_none=True)
    outputs, vjp = network.layers.evaluate(leaf)
    assert not outputs.requires_grad
    close(outputs, expected.detach())
    trained = [p for p in (*network.body.parameters(), *network.head.parameters()) if p.requires_grad]
    of_inputs = vjp(grad)
    assert of_inputs is not None
    for result, two in zip((of_inputs, *(p.grad for p in trained)), exact_grads, strict=True):
        assert result is not None
        close(result, two)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 5, 16, 33, 70]), min_size=2, max_size=4),
    st.sampled_from(["tanh", "relu", "elu", "identity"]),
    st.sampled_from([1, 2, 5, 13, 64]),
    st.integers(0, 99),
)
def test_outputs_and_gradients_are_those_of_modules(widths: list[int], activation: str, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    network = Network(tuple(widths), activation)
    with torch.no_grad():
        for module in (*network.body, network.head):
            if isinstance(module, nn.Linear):
                module.bias.uniform_(-0.5, 0.5)  # no ReLU at 0
    require_like_modules(network, torch.randn(rows, widths[0]))


@needs_library
@pytest.mark.kernels("tests which kernel is chosen")
def test_compiled_code_evaluates_dense_layers() -> None:
    assert kernel_of(Network().layers) == "DifferentiableDense"
    assert kernel_of(Network(activation_fn="elu").layers) == "TorchLayers"
    with kernels_off():
        assert kernel_of(Network().layers) == "TorchLayers"
    network = Network()
    network.head.register_forward_hook(lambda *_: None)
    assert kernel_of(network.layers) == "TorchLayers"


def doubled(network: Network) -> Network:
    network.head.register_forward_hook(lambda _module, _inputs, outputs: 2.0 * outputs)
    return network


def replaced(network: Network) -> Network:
    network.head = nn.Linear(8, 5)
    return network


def extended(network: Network) -> Network:
    network.body.append(nn.LayerNorm(8))
    return network


def moved(network: Network) -> Network:
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()
    return network


def transposed(network: Network) -> Network:
    weight = network.head.weight
    weight.data = weight.data.T.contiguous().T
    return network


def frozen(network: Network) -> Network:
    network.body.requires_grad_(False)
    return network


CHANGES: list[Callable[[Network], Network]] = [replaced, extended, moved, transposed, frozen, copy.deepcopy, doubled]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_the_network_are_noticed(change: Callable[[Network], Network]) -> None:
    torch.manual_seed(0)
    network, x = Network(), torch.randn(6, 4)
    network(x)
    network = change(network)
    if change is not doubled:
        require_like_modules(network, x)
        return
    torch.testing.assert_close(network(x), network.by_modules(x))


def test_a_copy_calls_its_own_children() -> None:
    network, x = Network(), torch.randn(3, 4)
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.head.bias.add_(1.0)
    torch.testing.assert_close(other(x), network(x) + 1.0)


def test_vjp_adds_to_gradients_as_backward_does() -> None:
    """Also of children that two `Layers` share, and nothing to frozen ones."""
    torch.manual_seed(1)
    network, x, grad = Network(), torch.randn(6, 4), torch.randn(6, 3)
    network.head.bias.requires_grad_(False)
    network.by_modules(x).backward(grad)
    expected = {name: 3 * p.grad for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    (_, one), (_, two) = network.layers.evaluate(x), Layers(network, "body", "head").evaluate(x)
    assert one(grad) is None
    assert two(2.0 * grad) is None
    found = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    assert (
        set(found) == set(expected) == {"body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias", "head.weight"}
    )
    for name, value in expected.items():
        close(value, found[name])


def test_all_frozen() -> None:
    network, x = Network().requires_grad_(False), torch.randn(6, 4)
    assert not network(x).requires_grad
    _, vjp = network.layers.evaluate(x)
    assert vjp(torch.ones(6, 3)) is None
    assert all(p.grad is None for p in network.parameters())
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(network.by_modules(leaf).sum(), leaf)
    _, vjp = network.layers.evaluate(leaf)
    found = vjp(torch.ones(6, 3))
    assert found is not None
    close(found, expected)
    close(torch.autograd.grad(network(leaf).sum(), leaf)[0], expected)


def test_second_derivatives() -> None:
    """As a gradient penalty needs them."""
    torch.manual_seed(2)
    network = Network()

    def penalty(evaluate: Callable[[Tensor], Tensor]) -> list[Tensor]:
        leaf = torch.linspace(-1, 1, 24).view(6, 4).requires_grad_()
        (grad,) = torch.autograd.grad(evaluate(leaf).sum(), leaf, create_graph=True)
        return list(torch.autograd.grad(grad.square().sum(), [leaf, network.head.weight, network.body[0].weight]))

    for one, two in zip(penalty(network), penalty(network.by_modules), strict=True):
        close(one, two)


def test_second_derivatives_with_frozen_layers() -> None:
    network, x = Network(), torch.randn(6, 4)
    network.body[0].requires_grad_(False)

    def norm_of_gradients(evaluate: Callable[[Tensor], Tensor]) -> list[Tensor]:
        trained = [network.body[2].weight, network.head.weight]
        grads = torch.autograd.grad(evaluate(x).sin().sum(), trained, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in grads), trained))

    for one, two in zip(norm_of_gradients(network), norm_of_gradients(network.by_modules), strict=True):
        close(one, two)


@pytest.mark.parametrize("activation", ["tanh", "elu"])
def test_evaluate_needs_no_autograd(activation: str) -> None:
    network, x = Network(activation_fn=activation), torch.randn(6, 4)
    network.by_modules(x).sum().backward()
    expected = network.head.weight.grad
    network.zero_grad(set_to_none=True)
    with torch.no_grad():
        _, vjp = network.layers.evaluate(x)
        vjp(torch.ones(6, 3))
    assert expected is not None
    assert network.head.weight.grad is not None
    close(network.head.weight.grad, expected)


@pytest.mark.parametrize(
    "place", [lambda n: n.body, lambda n: n.body[1], lambda n: n.head], ids=["whole", "one", "last"]
)
def test_hooks_are_called(place: Callable[[Network], nn.Module]) -> None:
    network, calls = Network(), list[int]()
    network(torch.randn(6, 4))
    place(network).register_forward_hook(lambda _module, _inputs, outputs: calls.append(len(outputs)))
    network(torch.randn(6, 4))
    network.layers.evaluate(torch.randn(5, 4))
    assert calls == [6, 5]


@needs_library
@pytest.mark.kernels("tests which kernel is chosen")
def test_without_avx2_torch_evaluates_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """There torch is faster: see `NUMPY_SIZE`."""
    monkeypatch.setattr(choice, "has_avx2", lambda: False)
    network, most = Network((4, 64, 2)), choice.NUMPY_SIZE // 64
    kernel, calls = network.layers._kernel(), list[int]()
    monkeypatch.setattr(kernel, "reference", lambda x: calls.append(len(x)))
    network(torch.randn(most, 4))
    network(torch.randn(most + 1, 4))
    assert calls == [most + 1]


def test_a_changed_parameter_is_an_error_in_backward() -> None:
    network = Network()
    outputs = network(torch.randn(6, 4))
    with torch.no_grad():
        network.head.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_transformations_of_torch() -> None:
    network, x = Network(), torch.randn(6, 4)
    values = {name: p.detach() for name, p in network.named_parameters()}

    def of(given: dict[str, Tensor]) -> Tensor:
        found: Tensor = torch.func.functional_call(network, given, (x,)).sum()
        return found

    found = torch.func.grad(of)(values)
    expected = torch.autograd.grad(network.by_modules(x).sum(), network.head.weight)[0]
    close(found["head.weight"], expected)
    torch.testing.assert_close(torch.func.vmap(network)(x.unsqueeze(1)).squeeze(1), network.by_modules(x))


@pytest.mark.parametrize("x", [torch.randn(4), torch.randn(2, 3, 4), torch.randn(0, 4), torch.randn(3, 8)[:, ::2]])
def test_inputs_of_other_shapes(x: Tensor) -> None:
    network = Network()
    found = network(x)
    torch.testing.assert_close(found, network.by_modules(x))
    found.sum().backward()
    outputs, _ = network.layers.evaluate(x)
    torch.testing.assert_close(outputs, found.detach())


@pytest.mark.parametrize("x", [torch.randn(6, 5), torch.randn(6, 4).double(), torch.ones(6, 4, dtype=torch.int64)])
def test_wrong_inputs_raise_the_errors_of_torch(x: Tensor) -> None:
    network: Any = Network()
    for evaluate in (network, network.layers.evaluate):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as one that the kernel is not used any more
            with pytest.raises(RuntimeError):
                evaluate(x)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_a_module_with_a_number_as_parameter() -> None:
    network, x = Network(), torch.randn(6, 4)
    network.body.append(Scale())
    torch.testing.assert_close(network(x), network.by_modules(x))


def test_an_ensemble_is_called_as_a_module() -> None:
    class Critics(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critics = EnsembleMLP(2, 4, [8], 1, "relu").layers
            self.values = Layers(self, "critics")

    critics, x = Critics(), torch.randn(2, 6, 4)
    torch.testing.assert_close(critics.values(x), critics.critics(x))
    with pytest.raises(RuntimeError):  # as the module does
        critics.values(x[0])


def test_wrong_names() -> None:
    network = Network()
    with pytest.raises(UsageError, match=r"there is no child 'boddy', 'tail'; .* of Network: body, head, other$"):
        Layers(network, "boddy", "head", "tail")
    with pytest.raises(UsageError, match="no name was given"):
        Layers(network)
    with pytest.raises(UsageError, match="it has none yet, so make them first"):
        Layers(nn.Linear(1, 1), "body")


def test_the_state_dict_has_the_names_of_the_children() -> None:
    assert set(Network().state_dict()) == {
        f"{n}.{p}" for n in ("body.0", "body.2", "head", "other") for p in ("weight", "bias")
    }
