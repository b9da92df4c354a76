"""Dense networks with batch renormalization in compiled code return the values, gradients and statistics of torch's modules."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels import KernelChoice
from rlsdk.kernels.factory import compiled_off, kernels_off
from rlsdk.networks import EnsembleMLP, flatten_parameters, mlp
from rlsdk.runtime import limited_threads
from rlsdk_crossq import CrossQ
from rlsdk_crossq.config import CrossQPolicyConfig
from rlsdk_crossq.layers import BatchRenorm, batch_statistics
from rlsdk_kernels import choice as factory
from rlsdk_kernels.compiled_library import has_avx2
from rlsdk_kernels.compiled_renorm import CompiledRenorm, is_renormalized
from tests.compiled_variants import RUNNABLE, needs_library

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
NAMES = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Identity: "identity"}
SIZES = st.lists(st.sampled_from([1, 2, 3, 5, 15, 16, 17, 33, 64, 80]), min_size=2, max_size=4)


def network(
    widths: list[int], members: int, activation: type[nn.Module] = nn.ReLU, warm_up: int = 100, offset: float = 0.0
) -> nn.Sequential:
    """A network, or an ensemble, whose statistics and parameters are random. Running means are about `offset`."""
    config = CrossQPolicyConfig(renorm_warmup_steps=warm_up, batch_norm_momentum=0.1)
    inputs, *hidden, outputs = widths
    if members:
        layers = list(EnsembleMLP(members, inputs, hidden, outputs, NAMES[activation]).layers)
    else:
        layers = [*mlp(inputs, hidden, activation), nn.Linear(widths[-2], outputs)]
    found = list[nn.Module]()
    for number, width in enumerate(widths[:-1]):
        norm = BatchRenorm((members, width) if members else (width,), config)
        nn.init.normal_(norm.scale)
        nn.init.normal_(norm.bias)
        norm.mean.normal_(0.0 if number else offset)
        norm.variance.uniform_(0.3, 3.0)
        norm.passes.fill_(5)
        found += [norm, *layers[2 * number : 2 * number + 2]]
    made = nn.Sequential(*found)
    flatten_parameters(list(made.parameters()))
    return made


def exact_outputs(exact: nn.Sequential, inputs: Tensor, members: int, in_batch: bool) -> tuple[Tensor, list[Tensor]]:
    """The outputs of a copy of a network in float64, and the inputs of all its activations."""
    x, before = inputs.expand(members, -1, -1) if members else inputs, list[Tensor]()
    for module in exact:
        if type(module) is nn.ReLU:
            before.append(x.detach())
        if isinstance(module, BatchRenorm):
            module.in_batch = in_batch
        x = module(x)
    return x, before


def close(found: Tensor, expected: Tensor, largest: float | None = None) -> None:
    """Require differences below 5e-5 of the `largest` number, by default of those expected.

    Where means are larger than deviations, slope x + intercept loses digits. In 300 such networks the largest difference was
    2e-5, and 4e-6 with torch's modules.
    """
    scale = float(expected.abs().max()) if largest is None else largest
    torch.testing.assert_close(found.double(), expected, atol=5e-5 * scale + 1e-6, rtol=1e-4)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("variant", RUNNABLE, indirect=True)
def test_outputs_gradients_and_statistics(variant: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(
        SIZES,
        st.sampled_from([0, 1, 3]),
        st.sampled_from(list(NAMES)),
        st.sampled_from([4, 5, 16, 67]),
        st.tuples(st.booleans(), st.sampled_from([4, 5]), st.sampled_from([0.0, 300.0])),
        st.integers(0, 999),
    )
    def check(
        widths: list[int], members: int, activation: type[nn.Module], rows: int, how: tuple[bool, int, float], seed: int
    ) -> None:
        torch.manual_seed(seed)
        in_batch, warm_up, offset = how
        own = network(widths, members, activation, warm_up, offset)
        exact = copy.deepcopy(own).double()
        x = torch.randn(rows, widths[0]) + offset
        entered = x.double().requires_grad_()
        outputs, before = exact_outputs(exact, entered, members, in_batch)
        assume(all(float(z.abs().min()) > 1e-3 for z in before))  # at the kink of ReLU, rounding decides
        assert is_renormalized(list(own))
        kernel = CompiledRenorm(list(own))
        moved = copy.deepcopy(list(own.buffers()))
        with batch_statistics(own) if in_batch else torch.no_grad():
            found, to_inputs = kernel.evaluate_inputs(x)
            for now, saved in zip(own.buffers(), moved, strict=True):
                now.copy_(saved)
            found, learn = kernel.evaluate(x)
        close(found, outputs.detach())
        grad = torch.randn(found.shape)
        expected = torch.autograd.grad(outputs, [entered, *exact.parameters()], grad.double())
        learn(grad)
        # not of each tensor: the next normalization removes the bias of a unit that is active in all rows
        largest = max(float(each.abs().max()) for each in expected)
        for parameter, gradient in zip(own.parameters(), expected[1:], strict=True):
            assert parameter.grad is not None
            close(parameter.grad, gradient, largest)
        close(to_inputs(grad), expected[0], largest)
        for now, wanted in zip(own.buffers(), exact.buffers(), strict=True):
            close(now, wanted.double())

    check()


def test_a_constant_feature_has_the_gradient_of_torch() -> None:
    torch.manual_seed(0)
    own = network([2, 8, 1], 2, warm_up=0)
    with torch.no_grad():
        cast("nn.Parameter", own[1].bias).fill_(-9.0)  # no unit is active
    exact, x = copy.deepcopy(own).double(), torch.randn(6, 2)
    outputs, _ = exact_outputs(exact, x.double(), 2, True)
    expected = torch.autograd.grad(outputs.sum(), list(exact.parameters()))
    kernel = CompiledRenorm(list(own))
    with batch_statistics(own):
        found, learn = kernel.evaluate(x)
    learn(torch.ones_like(found))
    for parameter, gradient in zip(own.parameters(), expected, strict=True):
        assert parameter.grad is not None
        close(parameter.grad, gradient)


def test_two_threads_compute_the_same() -> None:
    torch.manual_seed(0)
    own, x = network([20, 256, 200, 1], 3), torch.randn(128, 20)

    def computed() -> list[Tensor]:
        copied = copy.deepcopy(own)
        flatten_parameters(list(copied.parameters()))
        with batch_statistics(copied):
            outputs, learn = CompiledRenorm(list(copied)).evaluate(x)
            learn(outputs)
        return [outputs, *copied.buffers(), *(p.grad for p in copied.parameters() if p.grad is not None)]

    alone = computed()
    with limited_threads(2):
        assert all(map(torch.equal, alone, computed()))


def made(**settings: Any) -> CrossQ:
    # Adam would divide gradients that are rounding errors by their own size
    networks = {"net_arch": {"pi": [16], "qf": [40, 24]}, "optimizer_kwargs": {"betas": (0.5, 0.999), "eps": 1e-3}}
    networks |= {"renorm_warmup_steps": 20, **settings.pop("policy_kwargs", {})}
    small = {"seed": 0, "buffer_size": 500, "learning_starts": 20, "batch_size": 16, "policy_kwargs": networks}
    return CrossQ("MlpPolicy", "Pendulum-v1", **{**small, **settings})


def evaluator(model: CrossQ) -> object:
    critic: Any = model.critic
    return critic._kernels()[0]


needs_avx2 = pytest.mark.skipif(not has_avx2(), reason="products without AVX2 are not faster than torch's")


@needs_avx2
def test_critics_of_crossq_use_it_and_learn_as_without_it() -> None:
    model = made().learn(60)
    assert isinstance(evaluator(model), CompiledRenorm)
    with kernels_off():
        plain = made().learn(60)
        assert not isinstance(evaluator(plain), CompiledRenorm)
    with compiled_off():
        assert not isinstance(evaluator(made()), CompiledRenorm)
    assert not isinstance(evaluator(made(policy_kwargs={"kernel": "autograd"})), CompiledRenorm)
    for one, two in zip(model.critic.state_dict().values(), plain.critic.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)


def test_copies_have_their_own_statistics() -> None:
    own = network([3, 8, 1], 2)
    kernel = CompiledRenorm(list(own))
    kernel.evaluate(torch.randn(5, 3))
    for copied in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        norm: Any = copied.norms[0]
        norm.in_batch = True
        copied.evaluate(torch.randn(5, 3))
        assert int(norm.passes) == 6
    assert int(cast("Tensor", own[0].passes)) == 5


@needs_avx2
def test_other_layers_are_left_to_torch() -> None:
    reference = object()

    def chosen(*modules: nn.Module, encoder: nn.Module | None = None, device: str = "cpu") -> object:
        given = KernelChoice(width=8, rows=8, device=device)
        return factory.dense_network(list(modules), encoder or nn.Identity(), given, False, reference)

    own = list(network([3, 8, 1], 2))
    assert isinstance(chosen(*own), CompiledRenorm)
    assert chosen(*own, device="cuda") is reference
    assert chosen(*own, encoder=nn.Linear(3, 3)) is reference, "it is trained too"
    assert factory.dense_network(own, nn.Identity(), KernelChoice(width=8), False, reference, 0) is reference
    assert chosen(*own[1:]) is reference, "the first layer has no normalization"
    assert chosen(*own[:-1]) is reference
    assert chosen(*own, nn.ReLU()) is reference
    assert chosen(own[3], *own[1:]) is reference, "of another width"
    assert chosen(*network([3, 8, 1], 2).double()) is reference
    hooked = network([3, 8, 1], 2)
    hooked[0].register_forward_hook(lambda *_: None)
    assert chosen(*hooked) is reference


def test_what_compiled_code_must_not_read_is_refused() -> None:
    own = network([3, 8, 1], 2)
    kernel, x = CompiledRenorm(list(own)), torch.randn(5, 3)
    outputs, learn = kernel.evaluate(x)
    with pytest.raises(ValueError, match="the gradient has the shape"):
        learn(outputs[..., :0])
    with pytest.raises(ValueError, match=r"takes inputs \[N, 3\]"):
        kernel.evaluate(x[:, :2])
    scale: Any = own[0].scale
    scale.grad = torch.zeros(3, 2).T
    with pytest.raises(UsageError, match="a gradient of a normalization is not contiguous float32"):
        learn(torch.ones_like(outputs))
    own[0].mean = own[0].mean.double()
    with pytest.raises(UsageError, match="numbers of a batch normalization became another dtype"):
        kernel.evaluate(x)
