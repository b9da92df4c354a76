"""Compiled samples of squashed Gaussians, their log-densities and gradients equal those of torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import rlsdk
from rlsdk.distributions import SquashedGaussian
from rlsdk.errors import UsageError
from rlsdk.kernels.compiled_squashed import CompiledSquashed
from rlsdk.kernels.switch import compiled_off
from tests.compiled_variants import needs_library

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
LIMITS = (-20.0, 2.0)


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
        compiled = CompiledSquashed(mean, log_std, LIMITS)
        action, log_prob = compiled.transform(noise)
        leaves = [tensor.double().requires_grad_() for tensor in (mean, log_std)]
        exact = SquashedGaussian(leaves[0], leaves[1].clamp(*LIMITS))
        expected = exact.transform(noise.double())
        close(action, expected[0].detach(), 1e-6)
        close(log_prob, expected[1].detach(), 1e-5)
        assert bool((action.abs() < 1.0).all())
        loss = (expected[0] * grad_action).sum() + (expected[1] * grad_log_prob).sum()
        gradients = torch.autograd.grad(loss, leaves)
        found = compiled.transform_vjp(noise, expected[0].detach().float(), grad_action, grad_log_prob)
        for one, two in zip(found, gradients, strict=True):
            close(one, two, 1e-5 * (1.0 + float(log_std.clamp(*LIMITS).exp().max()) if rows else 1.0))

    check()


@pytest.mark.usefixtures("variant")
def test_log_densities_far_out() -> None:
    mean, noise = torch.tensor([[0.0], [-1e-6], [9.0], [-60.0], [1e30]]), torch.zeros(5, 1)
    action, log_prob = CompiledSquashed(mean, torch.zeros(5, 1), LIMITS).transform(noise)
    exact = SquashedGaussian(mean.double(), torch.zeros(5, 1).double()).transform(noise.double())
    close(action, exact[0], 3e-7)
    close(log_prob, exact[1], 1e-6)


@pytest.mark.usefixtures("variant")
def test_limits_and_numbers_that_are_not_finite() -> None:
    log_std = torch.tensor([[-30.0, -20.0, 0.0, 2.0, 3.0, math.nan]])
    compiled = CompiledSquashed(torch.zeros(1, 6), log_std, LIMITS)
    noise = torch.ones(1, 6)
    action, log_prob = compiled.transform(noise)
    close(action[:, :5], log_std[:, :5].double().clamp(*LIMITS).exp().tanh(), 1e-6)
    assert bool(action[0, 5].isnan())
    assert bool(log_prob.isnan())
    _, grad = compiled.transform_vjp(noise, action.nan_to_num(), torch.ones(1, 6), torch.ones(1))
    assert [bool(entry) for entry in grad[0, :5]] == [False, True, True, True, False]
    beyond = CompiledSquashed(torch.tensor([[math.nan, math.inf, -math.inf]]), torch.zeros(1, 3), LIMITS)
    action, _ = beyond.transform(torch.zeros(1, 3))
    assert bool(action[0, 0].isnan())
    close(action[:, 1:], torch.tensor([[1.0, -1.0]]).double(), 3e-7)


def test_what_c_code_must_not_read() -> None:
    compiled = CompiledSquashed(torch.zeros(4, 2), torch.zeros(4, 2), LIMITS)
    for noise in (torch.zeros(3, 2), torch.zeros(8), torch.zeros(0, 2)):
        with pytest.raises(UsageError, match=r"\[4, 2\]"):
            compiled.transform(noise)
    right = torch.zeros(4, 2)
    for wrong in ((right[:3], right, right), (right, right[:, :1], right), (right, right, right[:2])):
        with pytest.raises(UsageError, match=r"\[4, 2\]"):
            compiled.transform_vjp(*wrong, torch.zeros(4))
    with pytest.raises(UsageError, match=r"\[4\]"):
        compiled.transform_vjp(right, right, right, torch.zeros(3))


@pytest.mark.parametrize("name", ["sac", "tqc"])
def test_agents_learn_the_same_without_compiled_code(name: str) -> None:
    settings = {"learning_starts": 20, "batch_size": 16, "policy_kwargs": {"net_arch": [8, 8]}}

    def learnt() -> Tensor:
        model = rlsdk.make(name, env="Pendulum-v1", seed=0, **settings)
        model.learn(40)
        return torch.cat([p.detach().flatten() for p in model.policy.parameters()])

    with compiled_off():
        expected = learnt()
    torch.testing.assert_close(learnt(), expected, rtol=1e-3, atol=1e-4)
