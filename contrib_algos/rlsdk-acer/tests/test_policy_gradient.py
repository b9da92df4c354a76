"""The gradient of the objective equals autograd of the paper's formulas; the projection equals a bisection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rlsdk_acer.policy_gradient import EPSILON, States, divergence, objective, projected
from tests.tables import in_one_test


def random_states(seed: int, count: int = 40, actions: int = 4, *, sharp: float = 2.0) -> States:
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    probs, behavior = ((sharp * some(count, actions)).softmax(-1) for _ in range(2))
    action = torch.from_numpy(rng.integers(0, actions, count))
    return States(probs, behavior, action, some(count, actions), some(count))


def by_autograd(states: States, clip: float, ent_coef: float) -> tuple[Tensor, Tensor]:
    """Return (truncated part + correction + entropy [N], gradient [N, A]), state by state, from equation 9."""
    totals, gradients = [], []
    for n in range(len(states.probs)):
        pi, mu, q, a = states.probs[n].clone().requires_grad_(), states.behavior[n], states.values[n], states.action[n]
        rho = (pi / (mu + EPSILON)).detach()
        value = float(pi.detach() @ q)
        logs = torch.log(pi + EPSILON)
        total = min(clip, float(rho[a])) * (states.target[n] - value) * logs[a]
        for other in range(len(pi)):
            cut = max(0.0, 1.0 - clip / (float(rho[other]) + EPSILON))
            total = total + cut * float(pi.detach()[other]) * (q[other] - value) * logs[other]
        total = total - ent_coef * (pi * logs).sum()
        gradients.append(torch.autograd.grad(total, pi)[0])
        totals.append(total.detach())
    return torch.stack(totals), torch.stack(gradients)


@in_one_test
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("clip", "ent_coef"), [(10.0, 0.01), (0.5, 0.3), (1.0, 0.0)])
def test_the_gradient_is_that_of_autograd(seed: int, clip: float, ent_coef: float) -> None:
    states = random_states(seed)
    found = objective(states, clip, ent_coef)
    total, gradient = by_autograd(states, clip, ent_coef)
    torch.testing.assert_close(found.truncated + found.correction + ent_coef * found.entropy, total)
    torch.testing.assert_close(found.gradient, gradient)


def test_the_correction_is_needed_above_the_bound_only() -> None:
    states = random_states(0)
    largest = float(states.ratios.max())
    assert bool((objective(states, largest * 1.01, 0.0).correction == 0.0).all())
    within = (states.ratios < 1.0).all(-1)
    cut = objective(states, 1.0, 0.0).correction
    assert bool((cut[within] == 0.0).all())
    assert bool((cut[~within] != 0.0).all())


@pytest.mark.parametrize("clip", [0.3, 1.0, 3.0])
def test_truncation_and_correction_together_have_no_bias(clip: float) -> None:
    """The mean over actions of mu is the gradient of the policy's value, for every bound (section 3.2)."""
    states = random_states(3, count=30)
    expected = states.values - states.value.unsqueeze(-1)  # the derivative of sum_a pi(a) (Q(a) - V) by pi
    mean = torch.zeros_like(states.probs)
    for action in range(4):
        chosen = torch.full_like(states.action, action)
        target = states.values[:, action]  # the target is exact
        of_one = States(states.probs, states.behavior, chosen, states.values, target)
        both = objective(of_one, clip, 0.0)
        alone = objective(of_one, clip, 0.0).gradient - _correction(of_one, clip)
        mean += states.behavior[:, action : action + 1] * alone
        if action == 0:
            mean += both.gradient - alone
    torch.testing.assert_close(mean, expected, rtol=1e-2, atol=1e-3)


def _correction(states: States, clip: float) -> Tensor:
    """The gradient of the correction alone: with V as the target, the truncated part is 0."""
    neutral = States(states.probs, states.behavior, states.action, states.values, states.value)
    return objective(neutral, clip, 0.0).gradient


@in_one_test
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("delta", [0.0, 0.3, 1.0])
def test_the_projection_is_the_closest_step_within_the_bound(seed: int, delta: float) -> None:
    states = random_states(seed)
    gradient, average = states.values * 2, states.behavior
    z, active = projected(gradient, states.probs, average, delta)
    for n in range(len(z)):
        k, g = (-average[n] / (states.probs[n] + EPSILON)).numpy(), gradient[n].numpy()
        low, high = 0.0, 1e6  # bounds of the multiplier; the step is g - multiplier k
        if k @ g > delta:
            for _ in range(200):
                middle = (low + high) / 2
                low, high = (middle, high) if k @ (g - middle * k) > delta else (low, middle)
        else:
            high = 0.0
        np.testing.assert_allclose(z[n].numpy(), g - high * k, rtol=1e-6, atol=1e-9)
        assert bool(active[n]) == (k @ g > delta)
        assert k @ z[n].numpy() <= delta + 1e-9


def test_a_projected_step_lowers_the_divergence_more_than_the_free_one() -> None:
    """With delta = 0, a small step does not increase the divergence from the average policy, to first order."""
    states = random_states(4, sharp=1.0)
    z, _ = projected(states.values, states.probs, states.behavior, 0.0)
    before = divergence(states.behavior, states.probs)
    step = 1e-8 * z
    assert bool((divergence(states.behavior, states.probs + step) - before < 1e-12).all())
    free = divergence(states.behavior, states.probs + 1e-8 * states.values) - before
    assert bool((free > 1e-10).any())


def test_a_large_bound_leaves_the_gradient_as_it_is() -> None:
    states = random_states(5)
    z, active = projected(states.values, states.probs, states.behavior, 1e9)
    assert torch.equal(z, states.values)
    assert not bool(active.any())
