"""Compiled samples of squashed Gaussians, their log-densities and gradients equal those of torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

import rlsdk
from rlsdk.distributions import SquashedGaussian
from rlsdk.errors import UsageError
from rlsdk.kernels.factory import compiled_off
from rlsdk.kernels.protocol import SquashedLayers
from rlsdk.kernels.reference import AutogradPair
from rlsdk_kernels import compiled_library
from rlsdk_kernels.squashed_policy import CompiledSquashedPolicy
from tests.compiled_variants import needs_library
from tests.tables import in_one_test

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
LIMITS = (-20.0, 2.0)


@dataclass
class Compiled:
    """The functions of compiled code for mean and log std, float32 [N, A]."""

    mean: Tensor
    log_std: Tensor

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        action, log_prob = torch.empty_like(self.mean), torch.empty(len(self.mean))
        given, results = (self.mean, self.log_std, noise), (action, log_prob)
        found = compiled_library.loaded_library()
        found.squashed_sample(*places(given), *self.mean.shape, *LIMITS, *places(results))
        return action, log_prob

    def transform_vjp(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients for (noise, action, grad_action, grad_log_prob)."""
        grads = torch.empty_like(self.mean), torch.empty_like(self.mean)
        found = compiled_library.loaded_library()
        found.squashed_vjp(*places((self.log_std, *given)), *self.mean.shape, *LIMITS, *places(grads))
        return grads


def places(tensors: Iterable[Tensor]) -> list[int]:
    return list(map(Tensor.data_ptr, tensors))


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("variant")
def test_samples_and_gradients() -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, 40), st.integers(1, 20), st.sampled_from([0.01, 1.0, 6.0, 40.0]), st.integers(0, 999))
    def check(rows: int, size: int, scale: float, seed: int) -> None:
        torch.manual_seed(seed)
        mean, log_std, noise, grad_action = (torch.randn(rows, size) for _ in range(4))
        mean, log_std, grad_log_prob = scale * mean, 2.0 * log_std, torch.randn(rows)
        compiled = Compiled(mean, log_std)
        action, log_prob = compiled.transform(noise)
        leaves = [tensor.double().requires_grad_() for tensor in (mean, log_std)]
        exact = SquashedGaussian(leaves[0], leaves[1].clamp(*LIMITS))
        expected = exact.transform(noise.double())
        close(action, expected[0].detach(), 1e-6)
        close(log_prob, expected[1].detach(), 1e-5)
        assert bool((action.abs() <= 1.0).all())
        loss = (expected[0] * grad_action).sum() + (expected[1] * grad_log_prob).sum()
        gradients = torch.autograd.grad(loss, leaves)
        found = compiled.transform_vjp(noise, expected[0].detach().float(), grad_action, grad_log_prob)
        for one, two in zip(found, gradients, strict=True):
            close(one, two, 1e-5 * (1.0 + float(log_std.clamp(*LIMITS).exp().max()) if rows else 1.0))

    check()


@pytest.mark.usefixtures("variant")
def test_log_densities_far_out() -> None:
    mean, noise = torch.tensor([[0.0], [-1e-6], [9.0], [-60.0], [1e30]]), torch.zeros(5, 1)
    action, log_prob = Compiled(mean, torch.zeros(5, 1)).transform(noise)
    exact = SquashedGaussian(mean.double(), torch.zeros(5, 1).double()).transform(noise.double())
    close(action, exact[0], 3e-7)
    close(log_prob, exact[1], 1e-6)


@pytest.mark.usefixtures("variant")
def test_limits_and_numbers_that_are_not_finite() -> None:
    log_std = torch.tensor([[-30.0, -20.0, 0.0, 2.0, 3.0, math.nan]])
    compiled = Compiled(torch.zeros(1, 6), log_std)
    noise = torch.ones(1, 6)
    action, log_prob = compiled.transform(noise)
    close(action[:, :5], log_std[:, :5].double().clamp(*LIMITS).exp().tanh(), 1e-6)
    assert bool(action[0, 5].isnan())
    assert bool(log_prob.isnan())
    _, grad = compiled.transform_vjp(noise, action.nan_to_num(), torch.ones(1, 6), torch.ones(1))
    assert [bool(entry) for entry in grad[0, :5]] == [False, True, True, True, False]
    beyond = Compiled(torch.tensor([[math.nan, math.inf, -math.inf]]), torch.zeros(1, 3))
    action, _ = beyond.transform(torch.zeros(1, 3))
    assert bool(action[0, 0].isnan())
    close(action[:, 1:], torch.tensor([[1.0, -1.0]]).double(), 3e-7)


# --- whole policies --------------------------------------------------------------------------------------------------


def policy_layers(widths: list[int], inputs: int = 5, actions: int = 3) -> SquashedLayers:
    body: list[nn.Module] = []
    for one, two in zip([inputs, *widths], widths, strict=False):
        body += [nn.Linear(one, two), nn.ReLU()]
    heads = nn.Linear(widths[-1], actions), nn.Linear(widths[-1], actions)
    return SquashedLayers(body, *heads, SquashedGaussian, LIMITS)


def parameters_of(layers: SquashedLayers) -> list[nn.Parameter]:
    return [p for module in (*layers.body, layers.mean, layers.log_std) for p in module.parameters()]


def by_autograd(layers: SquashedLayers) -> AutogradPair:
    def sampled(inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        latent = nn.Sequential(*layers.body)(inputs[0])
        return SquashedGaussian(layers.mean(latent), layers.log_std(latent).clamp(*LIMITS)).transform(inputs[1])

    return AutogradPair(sampled)


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("widths", [[8], [16, 9], [33, 64, 7]])
@pytest.mark.parametrize("rows", [0, 1, 5, 70])
def test_whole_policies(widths: list[int], rows: int) -> None:
    torch.manual_seed(0)
    layers = policy_layers(widths)
    with torch.no_grad():  # some log stds are beyond both limits
        layers.log_std.bias.copy_(torch.tensor([-30.0, 0.0, 5.0]))
    exact = copy.deepcopy(layers)
    for module in (*exact.body, exact.mean, exact.log_std):
        module.double()
    features, noise = torch.randn(rows, 5), torch.randn(rows, 3)
    grads = torch.randn(rows, 3), torch.randn(rows)
    policy = CompiledSquashedPolicy(layers)
    for parameter in parameters_of(layers):
        parameter.grad = torch.full_like(parameter, 7.0)  # is overwritten
    results, vjp = policy.evaluate((features, noise))
    expected, exact_vjp = by_autograd(exact).evaluate((features.double(), noise.double()))
    vjp(*grads)
    exact_vjp(*(grad.double() for grad in grads))
    for one, two in zip(results, expected, strict=True):
        close(one, two, 1e-4)
    for mine, theirs in zip(parameters_of(layers), parameters_of(exact), strict=True):
        assert mine.grad is not None
        close(mine.grad, torch.zeros_like(theirs) if theirs.grad is None else theirs.grad, 1e-4)


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_acting(rows: int) -> None:
    layers = policy_layers([16, 16])
    policy, features = CompiledSquashedPolicy(layers), torch.randn(rows, 5)
    latent = nn.Sequential(*layers.body)(features)
    distribution = SquashedGaussian(layers.mean(latent), layers.log_std(latent).clamp(*LIMITS))
    close(policy.act(features, True, Generator()), distribution.mode().detach().double(), 1e-5)
    sampled = distribution.sample(Generator().manual_seed(4)).detach()
    close(policy.act(features, False, Generator().manual_seed(4)), sampled.double(), 1e-5)


def test_parameters_with_other_memory_are_read() -> None:
    layers = policy_layers([8])
    policy, features = CompiledSquashedPolicy(layers), torch.randn(4, 5)
    before = policy.act(features, True, Generator())
    layers.mean.weight.data = torch.zeros(3, 8)
    layers.mean.bias.data = torch.zeros(3)
    assert not policy.act(features, True, Generator()).any()
    assert before.any()


def test_gradients_with_other_memory_are_written() -> None:
    layers = policy_layers([8])
    policy = CompiledSquashedPolicy(layers)
    found = []
    for _ in range(2):
        for parameter in parameters_of(layers):
            parameter.grad = torch.zeros_like(parameter)
        torch.manual_seed(1)
        _, vjp = policy.evaluate((torch.randn(4, 5), torch.randn(4, 3)))
        vjp(torch.randn(4, 3), torch.randn(4))
        found.append([parameter.grad.clone() for parameter in parameters_of(layers) if parameter.grad is not None])
    assert all(map(torch.equal, *found))
    assert any(grad.any() for grad in found[0])


def test_gradients_do_not_depend_on_temporaries_of_the_caller() -> None:
    layers = policy_layers([8])
    policy, found = CompiledSquashedPolicy(layers), []
    for parameter in parameters_of(layers):
        parameter.grad = torch.zeros_like(parameter)
    for overwrites in (False, True):
        torch.manual_seed(2)
        features, noise = torch.randn(4, 5).double(), torch.randn(4, 3).double()
        results, vjp = policy.evaluate((features, noise))  # reads float32 copies
        if overwrites:
            del features, noise
            _ = [torch.full((4, size), 1e9) for size in (3, 5, 3, 5)]
        vjp(torch.ones_like(results[0]), torch.ones(4))
        found.append([parameter.grad.clone() for parameter in parameters_of(layers) if parameter.grad is not None])
    assert all(map(torch.equal, *found))


def test_what_c_code_must_not_read() -> None:
    layers = policy_layers([8])
    policy, right = CompiledSquashedPolicy(layers), torch.zeros(4, 5)
    for noise in (torch.zeros(3, 3), torch.zeros(12), torch.zeros(0, 3)):
        with pytest.raises(UsageError, match=r"\[4, 3\]"):
            policy.evaluate((right, noise))
    for features in (torch.zeros(4, 6), torch.zeros(5), torch.zeros(2, 4, 5)):
        with pytest.raises(ValueError, match=r"inputs \[N, 5\]"):
            policy.act(features, True, Generator())
    for parameter in parameters_of(layers):
        parameter.grad = torch.zeros_like(parameter)
    _, vjp = policy.evaluate((right, torch.zeros(4, 3)))
    for wrong in (torch.zeros(3, 3), torch.zeros(4, 1)):
        with pytest.raises(UsageError, match=r"\[4, 3\]"):
            vjp(wrong, torch.zeros(4))
    with pytest.raises(UsageError, match=r"\[4\]"):
        vjp(torch.zeros(4, 3), torch.zeros(3))
    layers.mean.weight.data = layers.mean.weight.data.double()
    with pytest.raises(UsageError, match="float32"):
        policy.act(right, True, Generator())


@pytest.mark.parametrize("name", ["sac", "tqc"])
def test_agents_learn_the_same_without_compiled_code(name: str) -> None:
    settings = {"learning_starts": 20, "batch_size": 16, "policy_kwargs": {"net_arch": [8, 8]}}

    def learned() -> Tensor:
        model = rlsdk.make(name, env="Pendulum-v1", seed=0, **settings)
        model.learn(40)
        return torch.cat([p.detach().flatten() for p in model.policy.parameters()])

    with compiled_off():
        expected = learned()
    torch.testing.assert_close(learned(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("variant")
def test_no_rows() -> None:
    """Empty tensors have the address 0, which compiled code must not touch."""
    mean, noise = torch.zeros(0, 3), torch.zeros(0, 3)
    action, log_prob = Compiled(mean, mean).transform(noise)
    assert (action.shape, log_prob.shape) == ((0, 3), (0,))
    assert Compiled(mean, mean).transform_vjp(noise, action, action, log_prob)[0].shape == (0, 3)
