"""Compiled kernels return the values and gradients of torch, refuse what C code must not read, and may be missing."""

from __future__ import annotations

import copy
import ctypes
import itertools
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

import rlsdk
from rlsdk.distributions import Categorical, Gaussian
from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.errors import UsageError
from rlsdk.kernels import KernelChoice, reference
from rlsdk.kernels.factory import advantages, compiled_off, kernels_off
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise
from rlsdk.kernels.vector_steps import VectorStep
from rlsdk.networks import flatten_parameters
from rlsdk.networks.layers import EnsembleMLP
from rlsdk.records import StepData
from rlsdk_kernels import choice as factory
from rlsdk_kernels import compiled_library, compiled_policy, compiled_vectors
from rlsdk_kernels.compiled_acting import ChoiceSampling
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.compiled_library import may_compile
from rlsdk_kernels.dense_choice import acting_dense, can_be_compiled, dense_of
from rlsdk_kernels.dense_kernel import DenseKernel
from tests.compiled_variants import RUNNABLE, needs_library
from tests.tables import in_one_test

FOLDER = compiled_library.FOLDER
GUMBEL = GumbelNoise(FORBIDDEN, SMALLEST)
ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.Identity]
pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]


def test_the_libraries_are_made_from_these_sources() -> None:
    for name in RUNNABLE:
        found = ctypes.CDLL(str(FOLDER / f"kernels-{name}.so"))
        found.sources.restype = ctypes.c_char_p
        assert found.sources().decode() == hatch_build.fingerprint(FOLDER), "install rlsdk again: make demo"


def layers(widths: list[int], activation: type[nn.Module]) -> list[nn.Module]:
    found: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        found += [nn.Linear(inputs, outputs), *([activation()] if i < len(widths) - 2 else [])]
    return found


def close(found: Tensor, expected: Tensor) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected.float(), atol=3e-6 * scale + 1e-7, rtol=1e-5)


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 65, 80, 130]), min_size=2, max_size=5)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("variant", RUNNABLE, indirect=True)
def test_dense_layers(variant: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(
        SIZES, st.sampled_from(ACTIVATIONS), st.sampled_from([1, 2, 3, 4, 5, 6, 7, 12, 13, 64, 67]), st.integers(0, 999)
    )
    def check(widths: list[int], activation: type[nn.Module], rows: int, seed: int) -> None:
        torch.manual_seed(seed)
        modules = layers(widths, activation)
        flatten_parameters([p for module in modules for p in module.parameters()])
        exact = copy.deepcopy(nn.Sequential(*modules)).double()
        kernel = CompiledDense(modules)
        x = torch.randn(rows, widths[0])
        entered = x.double().requires_grad_()
        before = [entered]
        for module in exact:
            before.append(module(before[-1]))
        kinks = [z for z, module in zip(before, exact, strict=False) if type(module) is nn.ReLU]
        assume(all(float(z.abs().min()) > 1e-5 for z in kinks))
        outputs = before[-1]
        found, trace = kernel.forward(x)
        close(found, outputs.detach())
        assert torch.equal(kernel(x), found)
        grad = torch.randn(found.shape)
        expected = torch.autograd.grad(outputs, [entered, *exact.parameters()], grad.double(), retain_graph=True)
        close(kernel.input_grad(trace, grad, kernel.gradients()), expected[0])
        close(kernel.input_grad(trace, grad), expected[0])
        for parameter, gradient in zip(kernel.parameters, expected[1:], strict=True):
            assert parameter.grad is not None
            close(parameter.grad, gradient)
        direction = [torch.randn_like(parameter) for parameter in kernel.parameters]
        moved = kernel.jvp(trace, kernel.arrays(direction))
        values = {name: p.detach() for name, p in exact.named_parameters()}
        tangents = dict(zip(values, (d.double() for d in direction), strict=True))
        call = lambda given: torch.func.functional_call(exact, given, (entered.detach(),))  # noqa: E731
        close(moved, torch.func.jvp(call, (values,), (tangents,))[1])

    check()


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("rows", [1, 5, 8, 70])
@pytest.mark.parametrize("widths", [[3, 1, 2], [17, 23, 1], [5, 40, 300], [300, 45, 530]])
def test_activations_are_those_of_complete_sums(widths: list[int], rows: int, activation: type[nn.Module]) -> None:
    """A network computes the same numbers as its layers alone, with activations and derivatives between them.

    Activations are applied while sums are in registers. Sums of more than 256 products are complete after several blocks only.
    """
    torch.manual_seed(0)
    first, between, last = layers(widths, activation)
    whole, below, above = (CompiledDense(part) for part in ([first, between, last], [first, between], [last]))
    x, grad = torch.randn(rows, widths[0]), torch.randn(rows, widths[2])
    outputs, trace = whole.forward(x)
    hidden, lower = below.forward(x)
    final, upper = above.forward(hidden)
    assert torch.equal(outputs, final)
    sums = CompiledDense([first]).forward(x)[0]
    assert activation is nn.Tanh or torch.equal(hidden, sums.relu())
    found = whole.input_grad(trace, grad)
    assert torch.equal(found, below.input_grad(lower, above.input_grad(upper, grad)))


def test_many_rows_are_evaluated_in_blocks() -> None:
    modules = layers([3, 20, 2], nn.Tanh)
    x = torch.randn(5000, 3)
    close(CompiledDense(modules)(x), nn.Sequential(*modules)(x).detach().double())


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sums_of_several_blocks(activation: type[nn.Module], stacked: bool) -> None:
    """Sums of more than 256 products are added up in blocks. With small whole numbers, all of them are exact."""
    torch.manual_seed(0)
    whole, widths, rows = activation is not nn.Tanh, [300, 70, 530, 21], 613
    network = EnsembleMLP(2, widths[0], widths[1:-1], widths[-1], activation)
    modules = list(network.layers) if stacked else layers(widths, activation)
    exact = nn.Sequential(*modules)
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape) if whole else torch.randn_like(parameter) / 16)
    flatten_parameters(list(exact.parameters()))
    kernel = CompiledDense(modules)
    x = torch.randint(-2, 3, (rows, widths[0])).float() if whole else torch.randn(rows, widths[0])
    found, trace = kernel.forward(x)
    grad = torch.randint(-1, 2, found.shape).float()
    input_grad = kernel.input_grad(trace, grad, kernel.gradients())
    exact = copy.deepcopy(exact).double()
    entered = x.double().expand(*found.shape[:-1], -1).clone().requires_grad_()
    outputs = exact(entered)
    expected = torch.autograd.grad(outputs, [entered, *exact.parameters()], grad.double())
    gradients = [parameter.grad for parameter in kernel.parameters]
    for one, two in zip([found, input_grad, *gradients], [outputs.detach(), *expected], strict=True):
        assert one is not None
        close(one, two)
        assert not whole or torch.equal(one.double(), two)


@pytest.mark.usefixtures("variant")
def test_activations_have_small_errors_and_keep_what_is_not_finite() -> None:
    identity = nn.Linear(1, 1)
    with torch.no_grad():
        identity.weight.fill_(1.0)
        identity.bias.zero_()
    size = torch.cat([torch.linspace(-12.0, 12.0, 40_001), torch.logspace(-30, 4, 3000), torch.tensor([0.0, -0.0])])
    unusual = torch.tensor([float("nan"), float("inf"), -float("inf")])
    x = torch.cat([size, -size, unusual]).unsqueeze(1)
    found = CompiledDense([identity, nn.Tanh()])(x)
    expected = torch.tanh(x.double())
    assert float(((found - expected).abs() / expected.abs().clamp(min=1e-30))[:-3].max()) < 4e-7
    assert found[-3].isnan()
    assert found[-2:].flatten().tolist() == [1.0, -1.0]
    assert float(found[:-3].abs().max()) <= 1.0
    assert torch.equal(found[x >= 9.0], torch.ones_like(found[x >= 9.0]))
    rectified = CompiledDense([identity, nn.ReLU()])(x)
    assert torch.equal(rectified.nan_to_num(7.0), torch.relu(x).nan_to_num(7.0))


def test_parameters_of_another_layout_or_type() -> None:
    linear = nn.Linear(2, 3)
    kernel, x = CompiledDense([linear, nn.Tanh()]), torch.ones(1, 2)

    def agrees(kernel: CompiledDense, module: nn.Module) -> None:
        assert torch.allclose(kernel(x), torch.tanh(module(x)), atol=1e-6)

    agrees(kernel, linear)
    linear.weight.data = torch.randn(2, 3).T
    agrees(kernel, linear)
    with torch.no_grad():
        linear.weight.mul_(2.0)
    agrees(kernel, linear)
    assert torch.allclose(kernel(torch.ones(2, 1, dtype=torch.float64).T), kernel(x)), "other numbers are converted"
    linear.double()
    with pytest.raises(UsageError, match=r"became torch\.float64 \[3, 2\] on cpu; it must stay torch\.float32"):
        kernel(x)


def test_what_c_code_must_not_read() -> None:
    modules = layers([4, 8, 2], nn.Tanh)
    flatten_parameters([p for module in modules for p in module.parameters()])
    kernel, x = CompiledDense(modules), torch.randn(5, 4)
    _, trace = kernel.forward(x)
    for wrong in (torch.randn(5, 3), torch.randn(4), torch.randn(1, 5, 4)):
        with pytest.raises(ValueError, match=r"takes inputs \[N, 4\]"):
            kernel(wrong)
    for wrong in (torch.randn(4, 2), torch.randn(5, 3), torch.randn(5)):
        with pytest.raises(ValueError, match="the outputs have"):
            kernel.backward(trace, wrong, kernel.gradients())
    for wrong_direction in (torch.randn(8, 3), torch.randn(8, 4, dtype=torch.float64), torch.randn(4, 8).T):
        with pytest.raises(UsageError, match="must be contiguous float32"):
            kernel.arrays([wrong_direction, *kernel.parameters[1:]])
    logits, action = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    head = head_of(GUMBEL)
    for out_of_range in (-1, 3, 2**40):
        with pytest.raises(UsageError, match="none of the 3 choices"):
            compiled_policy.taken(logits, torch.tensor([0, 1, out_of_range, 0, 1]), None, head)
    for actions in (action[:4], action.int(), action.float(), action.unsqueeze(1)):
        with pytest.raises(UsageError, match="the policy takes"):
            compiled_policy.taken(logits, actions, None, head)
    for mask in (torch.ones(5, 2, dtype=torch.bool), torch.ones(5, 3)):
        with pytest.raises(UsageError, match="the policy takes"):
            compiled_policy.taken(logits, action, mask, head)
        with pytest.raises(UsageError, match="the policy takes"):
            ChoiceSampling(CompiledDense([nn.Linear(4, 3)]), GUMBEL)(torch.randn(5, 4), mask, Generator())
    *_, vjp = compiled_policy.taken(logits, action, None, head)
    for gradients in ((torch.randn(4), None), (torch.randn(5), torch.randn(6)), (torch.randn(5, 1), None)):
        with pytest.raises(UsageError, match="the policy takes"):
            vjp(*gradients)
    with pytest.raises(UsageError, match="the policy takes"):
        compiled_policy.taken(logits, torch.randn(5, 2), None, head_of(NormalNoise(nn.Parameter(torch.zeros(3)))))


def test_what_is_compiled() -> None:
    plain = layers([2, 3, 1], nn.Tanh)
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    assert can_be_compiled(plain)
    assert isinstance(dense_of(plain, "compiled"), CompiledDense)
    for other in ([hooked], [nn.Linear(2, 2).double()], [nn.Linear(2, 2), nn.GELU()], []):
        assert not can_be_compiled(other)
    assert isinstance(dense_of([nn.Linear(2, 2).double()], "compiled"), DenseKernel)
    assert isinstance(dense_of(plain, "numpy"), DenseKernel)


def head_of(noise: Any) -> Any:
    """An action head with this way of sampling."""
    head: Any = nn.Module()
    head.sampling, head.own_parameters = noise, [noise.log_std] if isinstance(noise, NormalNoise) else []
    for parameter in head.own_parameters:
        parameter.grad = torch.zeros_like(parameter)
    return head


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("kind", ["choices", "masked choices", "vectors"])
@pytest.mark.parametrize(("rows", "size"), [(1, 2), (5, 3), (64, 17)])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_actions_taken(kind: str, rows: int, size: int, with_entropy: bool) -> None:
    torch.manual_seed(rows)
    raw, mask, log_std = torch.randn(rows, size), None, nn.Parameter(0.3 * torch.randn(size))
    exact = raw.double().requires_grad_()
    inputs: list[Tensor] = [exact]
    if kind == "vectors":
        deviation = log_std.detach().double().requires_grad_()
        action, inputs, head = torch.randn(rows, size), [exact, deviation], head_of(NormalNoise(log_std))
        expected: Any = Gaussian(exact, deviation.expand_as(exact))
    else:
        if kind == "masked choices":
            mask = torch.rand(rows, size) < 0.5
            mask[:, 1] = True
        expected, head = Categorical.of(exact, mask), head_of(GUMBEL)
        action = Categorical.of(raw, mask).sample(Generator().manual_seed(0))
    log_prob, entropy, vjp = compiled_policy.taken(raw, action, mask, head)
    close(log_prob, expected.log_prob(action).detach())
    close(entropy, expected.entropy().detach())
    of_log_prob, of_entropy = torch.randn(rows), torch.randn(rows) if with_entropy else None
    loss = (expected.log_prob(action) * of_log_prob).sum()
    if of_entropy is not None:
        loss = loss + (expected.entropy() * of_entropy).sum()
    gradients = torch.autograd.grad(loss, inputs)
    close(vjp(of_log_prob, of_entropy), gradients[0])
    if kind == "vectors":
        assert log_std.grad is not None
        close(log_std.grad, gradients[1])


@pytest.mark.usefixtures("variant")
def test_rmsprop_makes_the_steps_of_torch() -> None:
    torch.manual_seed(0)
    theirs = nn.Parameter(torch.randn(101))
    mine, square, count = theirs.detach().clone(), torch.zeros(101), torch.zeros(())
    optimizer = torch.optim.RMSprop([theirs], 0.01, alpha=0.9, eps=1e-3)
    for _ in range(30):
        gradient = torch.randn(101) * 10.0 ** torch.randint(-4, 4, (101,))
        theirs.grad = gradient.clone()
        optimizer.step()
        step = VectorStep("rmsprop", (mine, gradient, square, square), count, 0.01, (0.9, 0.9), 1e-3, 0.0)
        assert compiled_vectors.CompiledStep()(step)
    torch.testing.assert_close(mine, theirs.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(square, optimizer.state[theirs]["square_avg"], rtol=1e-5, atol=0.0)


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("size", [1, 7, 8, 50, 1001])
def test_the_norm_of_gradients(size: int) -> None:
    for scale in (0.001, 1.0, 1e6):
        gradients = scale * torch.randn(size)
        mine, theirs = gradients.clone(), gradients.clone()
        compiled_vectors.clip_norm(mine, 0.5)
        reference.clip_norm(theirs, 0.5)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=0.0)
    broken = torch.ones(size)
    broken[-1] = float("nan")
    compiled_vectors.clip_norm(broken, 0.5)
    assert broken.isnan().all()


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("copies", [1, 2, 15, 16, 17, 40])
def test_returns(copies: int) -> None:
    torch.manual_seed(copies)
    value, weight = torch.randn(30, copies), torch.rand(30, copies)
    expected = reference.discounted_sums(value.double(), weight.double())
    close(compiled_vectors.discounted_sums(value, weight), expected)
    close(compiled_vectors.discounted_sums(value.T.contiguous().T, weight), expected)
    twice = compiled_vectors.discounted_sums(value.double(), weight.double())
    assert twice.dtype is torch.float64
    torch.testing.assert_close(twice, expected, rtol=1e-14, atol=1e-14)
    one, two = value.flatten(), value.flatten() + 0.3 * weight.flatten()
    close(compiled_vectors.explained_variance(one, two), reference.explained_variance(one.double(), two.double()))
    assert compiled_vectors.explained_variance(one, torch.ones(30 * copies)) == 0.0
    assert compiled_vectors.explained_variance(one * float("nan"), two).isnan()


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("copies", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("length", [1, 2, 30])
def test_advantages(copies: int, length: int) -> None:
    torch.manual_seed(copies)
    for rate in (0.0, 0.2):
        terminated, truncated, filler = (torch.rand(3, length, copies) < rate).unbind()
        nothing: Any = None
        reward, value, following = torch.randn(3, length, copies).unbind()
        steps = StepData(nothing, nothing, reward, terminated, truncated, ~filler, nothing)
        advantage, target, whole = compiled_vectors.advantages(steps, value, following, 0.9, 0.8)
        expected = torch.zeros(copies, length, dtype=torch.float64)
        for t in reversed(range(length)):
            error = reward[t].double() + 0.9 * ~terminated[t] * following[t] - value[t]
            goes_on = ~(terminated | truncated | filler)[t] & (~filler[t + 1] if t + 1 < length else False)
            later = expected[:, t + 1] if t + 1 < length else 0.0
            expected[:, t] = error + 0.9 * 0.8 * goes_on * later
        close(advantage, expected.flatten())
        close(target, (expected + value.T).flatten())
        assert whole == (not bool(filler.any()))
        in_torch = [t.T.contiguous().T for t in (reward, terminated, truncated, ~filler)]  # other strides
        strided = StepData(nothing, nothing, *in_torch, nothing)
        assert torch.equal(compiled_vectors.advantages(strided, value, following, 0.9, 0.8)[0], advantage)
        assert compiled_vectors.advantages(steps, value.double(), following, 0.9, 0.8) is None
        by_torch = advantages(steps, value.double(), following, 0.9, 0.8)
        close(by_torch[0].float(), expected.flatten())
        with kernels_off():
            by_torch = advantages(steps, value, following, 0.9, 0.8)
        close(by_torch[0], expected.flatten())
        close(by_torch[1], (expected + value.T).flatten())
        assert by_torch[2] == whole


def test_compiled_code_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    choice, modules = KernelChoice(width=8, rows=8), layers([2, 3, 1], nn.Tanh)
    assert may_compile()
    assert factory.backend_name(choice) == "compiled"
    for off in (compiled_off, kernels_off):
        with off():
            assert not may_compile()
            assert isinstance(acting_dense(modules), DenseKernel)
    with kernels_off(), compiled_off():
        assert not may_compile()
    with compiled_off():
        assert factory.backend_name(choice) == "numpy"
    assert may_compile()


def test_no_library_or_another(tmp_path: Path) -> None:
    assert compiled_library.library_file(tmp_path) is None
    (tmp_path / "kernels-default.so").write_bytes(b"not a library")
    path = compiled_library.library_file(tmp_path)
    assert path is not None
    assert compiled_library.load(path) is None


@pytest.mark.parametrize("name", ["a2c", "ppo", "maskable-ppo", "trpo", "dqn", "sac"])
def test_agents_learn_the_same_without_compiled_code(name: str) -> None:
    env = {"sac": "Pendulum-v1", "maskable-ppo": "rlsdk/InvalidActionEnvDiscrete-v0"}.get(name, "CartPole-v1")
    given: dict[str, Any] = {"n_steps": 32} if name in ("ppo", "maskable-ppo", "trpo") else {}
    if name in ("dqn", "sac"):
        given = {"learning_starts": 20, "buffer_size": 200, "batch_size": 16, "policy_kwargs": {"net_arch": [32, 32]}}

    def learned() -> dict[str, Tensor]:
        agent = rlsdk.make(name, env=env, seed=0, **given)
        agent.learn(96)
        return {key: value.clone() for key, value in agent.policy.state_dict().items()}

    with compiled_off():
        expected = learned()
    for key, value in learned().items():
        torch.testing.assert_close(
            value, expected[key], rtol=2e-3, atol=2e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_gradients_of_long_rollouts_are_finite() -> None:
    modules = layers([3, 64, 64, 2], nn.Tanh)
    flatten_parameters([p for module in modules for p in module.parameters()])
    kernel = CompiledDense(modules)
    outputs, vjp = kernel.evaluate(1e4 * torch.randn(4096, 3))
    vjp(torch.ones_like(outputs))
    assert all(bool(torch.isfinite(p.grad).all()) for p in kernel.parameters if p.grad is not None)
    assert np.isfinite(outputs.numpy()).all()
