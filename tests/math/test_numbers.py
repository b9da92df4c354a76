"""Distributions and losses against independent references."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, TanhTransform

from rlsdk.distributions import Gaussian, SquashedGaussian
from rlsdk.math import quantile_huber_loss
from rlsdk.math.values import midpoints, quantile_huber
from rlsdk.networks.action_heads import StateDependentNoise
from rlsdk_kernels import pairwise_huber

SEEDS = st.integers(0, 10_000)


def parameters(seed: int, rows: int = 5, size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, size, generator=generator, dtype=torch.float64)
    return mean, torch.randn(rows, size, generator=generator, dtype=torch.float64) * 0.7 - 0.5


@given(SEEDS)
def test_gaussian_against_torch(seed: int) -> None:
    mean, log_std = parameters(seed)
    other_mean, other_log_std = parameters(seed + 1)
    ours, theirs = Gaussian(mean, log_std), Normal(mean, log_std.exp())
    action = ours.sample(torch.Generator().manual_seed(seed))
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    expected = torch.distributions.kl_divergence(theirs, Normal(other_mean, other_log_std.exp())).sum(-1)
    torch.testing.assert_close(ours.kl_divergence(Gaussian(other_mean, other_log_std)), expected)


@given(SEEDS)
def test_squashed_density_against_torch(seed: int) -> None:
    mean, log_std = parameters(seed)
    ours = SquashedGaussian(mean * 0.5, log_std)
    noise = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    action, density = ours.transform(noise)
    normal = Normal(mean * 0.5, log_std.exp())
    raw = normal.mean + normal.stddev * noise  # torch's inverse of tanh loses digits near 1
    theirs = normal.log_prob(raw) - TanhTransform().log_abs_det_jacobian(raw, action)
    torch.testing.assert_close(density, theirs.sum(-1), atol=1e-8, rtol=0.0)
    inside = (action.abs() < 0.99).all(-1)  # beyond, the pre-tanh value is not determined by the action
    torch.testing.assert_close(ours.log_prob(action)[inside], density[inside], atol=1e-8, rtol=0.0)


def test_squashed_density_is_exact_where_tanh_saturates() -> None:
    """The float32 density and its gradients, where tanh rounds to 1, equal the exact formula in float64."""
    raw = torch.tensor([[-40.0, -10.0, -4.0, -0.1, 0.0, 2.0, 8.0, 10.0, 25.0]], requires_grad=True)
    _, density = SquashedGaussian(raw, torch.zeros_like(raw)).transform(torch.zeros_like(raw))
    far = raw.detach().double().abs()
    exact = (2.0 * far - 2.0 * math.log(2.0) + 2.0 * (-2.0 * far).exp().log1p() - 0.5 * math.log(2.0 * math.pi)).sum()
    assert float(density.detach()) == pytest.approx(float(exact), rel=1e-6)
    density.sum().backward()
    torch.testing.assert_close(raw.grad, 2.0 * raw.detach().tanh())
    distribution = SquashedGaussian(raw.detach(), torch.zeros_like(raw))
    grads = distribution.transform_vjp(torch.zeros_like(raw), raw.detach().tanh(), torch.zeros_like(raw), torch.ones(1))
    torch.testing.assert_close(grads[0], raw.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squashed_entropy_against_numerical_integration(dtype: torch.dtype) -> None:
    """Entropies equal integrals and gradients equal finite differences, also around 0.7, where the quadrature changes."""
    means, deviations = [-8.0, -1.0, 0.0, 0.3, 3.0], [1e-4, 0.1, 0.5, 0.69, 0.71, 1.0, 3.0, 5.0, 7.0, 20.0]
    z = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    weight = torch.softmax(-0.5 * z.square(), 0)

    def exact(mean: float, std: float) -> float:
        x = (mean + std * z).abs()
        log_jacobian = 2.0 * (math.log(2.0) - x - torch.log1p(torch.exp(-2.0 * x)))
        return float((log_jacobian * weight).sum()) + math.log(std) + 0.5 + 0.5 * math.log(2.0 * math.pi)

    grid = torch.tensor([[m, math.log(s)] for m in means for s in deviations], dtype=dtype).requires_grad_()
    entropy = SquashedGaussian(grid[:, :1], grid[:, 1:]).entropy()
    expected = [exact(m, s) for m in means for s in deviations]
    assert entropy.detach().tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    (gradient,) = torch.autograd.grad(entropy.sum(), grid)
    step = 1e-4
    for row, (mean, log_std) in zip(gradient.tolist(), grid.detach().double().tolist(), strict=True):
        over_mean = (exact(mean + step, math.exp(log_std)) - exact(mean - step, math.exp(log_std))) / (2 * step)
        over_std = (exact(mean, math.exp(log_std + step)) - exact(mean, math.exp(log_std - step))) / (2 * step)
        assert row == pytest.approx([over_mean, over_std], abs=2e-3)


def test_squashed_density_integrates_to_one() -> None:
    for mean, log_std in ((0.0, 0.0), (0.8, -1.0), (-2.0, 0.3)):
        grid = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
        one = SquashedGaussian(
            torch.full((len(grid), 1), mean, dtype=torch.float64),
            torch.full((len(grid), 1), log_std, dtype=torch.float64),
        )
        total = torch.trapezoid(one.log_prob(grid[:, None]).exp(), grid)
        assert float(total) == pytest.approx(1.0, abs=2e-3)


def test_squashed_stays_finite_where_tanh_saturates() -> None:
    mean = torch.tensor([[30.0, -30.0]], requires_grad=True)
    action, density = SquashedGaussian(mean, torch.zeros(1, 2)).transform(torch.ones(1, 2))
    density.sum().backward()
    assert bool(density.isfinite().all())
    assert mean.grad is not None
    assert bool(mean.grad.isfinite().all())
    assert bool(SquashedGaussian(mean, torch.zeros(1, 2)).log_prob(action).isfinite().all())


def test_state_dependent_noise_has_the_stated_variance() -> None:
    noise = StateDependentNoise(4, 2, log_std_init=-0.5, use_expln=False)
    latent = torch.randn(1, 4, generator=torch.Generator().manual_seed(1)).expand(20_000, 4)
    drawn = noise.noise(latent, noise.matrices(20_000, torch.Generator().manual_seed(2)))
    torch.testing.assert_close(drawn.std(0), noise.log_std_of(latent[:1])[0].exp(), rtol=0.03, atol=0.0)


def test_expln_is_continuous_and_grows_slowly() -> None:
    noise = StateDependentNoise(1, 3, 0.0, use_expln=True)
    with torch.no_grad():
        noise.log_std.copy_(torch.tensor([[-2.0, 1e-7, 5.0]]))
    torch.testing.assert_close(noise.std(), torch.tensor([[torch.e**-2.0, 1.0, 1.0 + torch.log(torch.tensor(6.0))]]))


def naive(current: Tensor, target: Tensor, tau: Tensor, total: bool) -> float:
    """The quantile Huber loss by its definition, in a loop over all pairs."""
    loss = 0.0
    for z_row, y_row in zip(current.tolist(), target.tolist(), strict=True):
        for i, z in enumerate(z_row):
            for y in y_row:
                d = y - z
                huber = 0.5 * d * d if abs(d) <= 1 else abs(d) - 0.5
                loss += abs(float(tau[i]) - (d < 0)) * huber
    count = current.shape[0] * target.shape[1] * (1 if total else current.shape[1])
    return loss / count


@given(SEEDS, st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.booleans())
@settings(max_examples=50)
def test_quantile_huber_against_the_definition(seed: int, rows: int, k: int, m: int, total: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, y = (torch.randn(rows, n, generator=generator, dtype=torch.float64) * 2 for n in (k, m))
    expected = naive(z, y, midpoints(k, z), total)
    assert float(quantile_huber_loss(z, y, sum_over_quantiles=total)) == pytest.approx(expected)
    leaf = z.clone().requires_grad_()
    (reference,) = torch.autograd.grad(quantile_huber_loss(leaf, y, sum_over_quantiles=total), leaf)
    loss, gradient = quantile_huber(z, y, sum_over_quantiles=total)
    assert float(loss) == pytest.approx(expected)
    torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=1e-9)


@given(SEEDS, st.sampled_from([(), (2,)]), st.integers(1, 7), st.booleans(), st.booleans(), st.integers(1, 60))
@settings(max_examples=50)
def test_quantile_huber_in_segments(
    seed: int, members: tuple[int, ...], rows: int, weighted: bool, total: bool, segment: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, y = torch.randn(*members, rows, 3, generator=generator), torch.randn(rows, 4, generator=generator)
    weight = torch.rand(rows, generator=generator) if weighted else None
    whole, gradient = quantile_huber(z, y, sum_over_quantiles=total, weight=weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairwise_huber, "SEGMENT", segment)
        for _ in range(2):  # the second call reuses the memory of the first
            found = quantile_huber(z, y, sum_over_quantiles=total, weight=weight)
            torch.testing.assert_close(found, (whole, gradient))


def test_quantile_huber_accepts_the_documented_shapes() -> None:
    z2, z3 = torch.randn(4, 5), torch.randn(4, 2, 5)
    for current, targets in (
        (z2, [torch.randn(4, 7)]),
        (z3, [torch.randn(4, 7), torch.randn(4, 1, 7), torch.randn(4, 2, 7)]),
    ):
        for target in targets:
            assert quantile_huber_loss(current, target).dim() == 0
    for tau in (torch.rand(4, 5), torch.rand(4, 1, 5), torch.rand(4, 2, 5)):
        assert quantile_huber_loss(z3, torch.randn(4, 7), tau).dim() == 0
    for bad in ((z2[0], z2), (z2, torch.randn(3, 7)), (torch.randn(1, 1, 1, 1), z2)):
        with pytest.raises(ValueError, match="quantiles"):
            quantile_huber_loss(*bad)


def test_quantile_regression_finds_the_quantiles() -> None:
    """Minimizing the loss over samples gives the quantiles. A wide distribution makes the smoothing of Huber negligible."""
    samples = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 50
    z: Any = torch.zeros(1, 5, dtype=torch.float64)
    for _ in range(3000):
        _, gradient = quantile_huber(z, samples[None], sum_over_quantiles=True)
        z = z - 100.0 * gradient
    expected = torch.quantile(samples, midpoints(5, samples))
    torch.testing.assert_close(z[0], expected, atol=2.0, rtol=0.05)
