"""The discriminator's loss, gradient and rewards against an independent reference in numpy, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlsdk_gail.discriminator import RunningScale
from rlsdk_gail.loss import bernoulli_entropy, discriminator_loss, gradient_penalty, learned_reward
from tests.tables import in_one_test

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


@in_one_test
@pytest.mark.parametrize("seed", range(5))
def test_losses_and_rewards_equal_their_definitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expert, policy = rng.normal(0.0, 3.0, 7), rng.normal(0.0, 3.0, 4)
    d_expert, d_policy = sigmoid(expert), sigmoid(policy)
    found = discriminator_loss(torch.from_numpy(expert), torch.from_numpy(policy))
    assert float(found) == pytest.approx(-np.log(d_expert).mean() - np.log(1.0 - d_policy).mean(), abs=1e-9)
    entropy = -d_expert * np.log(d_expert) - (1.0 - d_expert) * np.log(1.0 - d_expert)
    assert bernoulli_entropy(torch.from_numpy(expert)).numpy() == pytest.approx(entropy, abs=1e-9)
    expected = {
        "positive": -np.log(1.0 - d_policy + 1e-8),
        "negative": np.log(d_policy + 1e-8),
        "logit": np.log(d_policy + 1e-8) - np.log(1.0 - d_policy + 1e-8),
        "constant": np.ones(4),
    }
    for form, reward in expected.items():
        assert learned_reward(torch.from_numpy(policy), form).numpy() == pytest.approx(reward, abs=1e-9)


def test_rewards_are_bounded_where_the_discriminator_is_certain() -> None:
    certain = torch.tensor([-1e4, 1e4])
    for form in ("positive", "negative", "logit"):
        found = learned_reward(certain, form)
        assert bool(found.isfinite().all())
        assert float(found.abs().max()) < 18.43
        assert float(found[1]) > float(found[0])


def test_a_fair_discriminator_gives_log_two() -> None:
    half = torch.zeros(3)
    assert float(discriminator_loss(half, half)) == pytest.approx(2.0 * np.log(2.0))
    assert bernoulli_entropy(half).tolist() == pytest.approx([np.log(2.0)] * 3)
    assert learned_reward(half, "positive").tolist() == pytest.approx([np.log(2.0)] * 3)
    assert learned_reward(half, "logit").tolist() == pytest.approx([0.0] * 3)


def test_the_penalty_is_of_the_distance_of_norms_from_one() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.6, 0.8]])
    assert float(gradient_penalty(gradient)) == pytest.approx((4.0**2 + 0.0) / 2)


def test_the_running_scale_is_that_of_all_rows_together() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(100.0, 5.0, (size, 3)) for size in (1, 4, 30)]
    scale = RunningScale(3)
    for part in parts:
        scale.update(torch.from_numpy(part).float())
    everything = np.concatenate(parts)
    assert scale.mean.numpy() == pytest.approx(everything.mean(0), rel=1e-5)
    assert scale.variance.numpy() == pytest.approx(everything.var(0), rel=1e-4)
    wanted = (everything - everything.mean(0)) / everything.std(0)
    assert scale(torch.from_numpy(everything)).numpy() == pytest.approx(wanted, abs=1e-3)
