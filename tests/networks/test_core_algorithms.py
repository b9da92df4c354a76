"""Parts of the core that SAC, TD3 and DQN use, compared with autograd and with calculations by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.math.values import clipped_double_q, half_squared_error, smooth_l1
from rlsdk.networks import ActionScale, DeterministicActor, FlattenEncoder
from rlsdk.networks.continuous import smoothed
from rlsdk.records import Observation
from rlsdk.spaces import Box
from rlsdk_sac.algorithm import MinimumOfCritics
from tests.tables import in_one_test


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["smooth l1", "half squared error"])
def test_closed_form_gradients_are_those_of_autograd(name: str, weighted: bool) -> None:
    torch.manual_seed(0)
    values, weight = 2.0 * torch.randn(2, 5, 1, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    loss = {"smooth l1": smooth_l1, "half squared error": half_squared_error}[name]
    target = torch.randn(*(values.shape if name == "smooth l1" else values.shape[1:]), dtype=torch.float64)
    leaf = values.clone().requires_grad_()
    rows = weight.unsqueeze(-1) if weighted else 1.0
    if name == "smooth l1":
        expected = (torch.nn.functional.smooth_l1_loss(leaf, target, reduction="none") * rows).mean()
    else:  # the loss of SAC in stable-baselines3: 0.5 * the sum over critics of mean squared errors
        expected = 0.5 * sum(((leaf[c] - target).square() * rows).mean() for c in range(2))
    (grad,) = torch.autograd.grad(expected, leaf)
    found = loss(values, target, weight=weight if weighted else None)
    torch.testing.assert_close(found[0], expected.detach())
    torch.testing.assert_close(found[1], grad)


def test_the_smallest_critic_counts() -> None:
    values = torch.tensor([[[1.0], [5.0]], [[2.0], [3.0]]])
    value, grad = MinimumOfCritics().actor_value(values)
    assert float(value) == 2.0
    assert grad.tolist() == [[[0.5], [0.0]], [[0.0], [0.5]]]
    reward, discount = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])
    assert clipped_double_q(values, torch.tensor(-1.0), reward, discount).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("batch_size", [16, 8])
def test_metrics_are_means_over_minibatches(batch_size: int) -> None:
    """A new policy of two actions chooses each with a probability of about 0.5, and so after small steps."""
    agent = rlsdk.make(
        "ppo", env="CartPole-v1", seed=0, n_steps=16, batch_size=batch_size, n_epochs=1, learning_rate=1e-6
    )
    seen: list[float] = []
    agent.learn(
        16, LambdaCallback(on_report=lambda run, report: seen.append(float(report.metrics["train/entropy_loss"])))
    )
    assert seen == [pytest.approx(-math.log(2.0), abs=1e-3)]


@in_one_test
@pytest.mark.parametrize("name", ["acer", "crossq", "ddpg", "dqn", "ppo", "qrdqn", "sac", "td3", "tqc", "trpo"])
def test_a_value_belongs_to_its_observation(name: str) -> None:
    """`state_values` gives one number per row, and the other rows do not matter."""
    env = "CartPole-v1" if name in ("acer", "dqn", "qrdqn") else "Pendulum-v1"
    parts = rlsdk.make(name, env=env, seed=0, policy_kwargs={"net_arch": [8]}).parts
    estimator: Any = parts.policy if hasattr(parts.policy, "state_values") else parts.algorithm
    rows = torch.randn(5, 4 if env == "CartPole-v1" else 3)

    def values(features: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found = estimator.state_values(Observation(features, torch.ones(len(features), dtype=torch.bool)))
        assert found.shape == (len(features),)
        return torch.as_tensor(found)

    together = values(rows)
    torch.testing.assert_close(together, torch.cat([values(row[None]) for row in rows]))
    assert len(set(together.tolist())) == 5


def test_a_deterministic_actor_acts_and_learns() -> None:
    low, high = np.array([-2.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32)
    seen = torch.randn(4, 3)
    actor = DeterministicActor(
        FlattenEncoder(Box(low=np.full(3, -9.0), high=np.full(3, 9.0), shape=(3,), dtype="float32")),
        (8,),
        "relu",
        ActionScale(Box(low=low, high=high, shape=(2,), dtype="float32")),
    )
    observation = Observation(seen, torch.zeros(4, dtype=torch.bool))
    acts = [
        actor.act(observation, (), deterministic=flag, generator=torch.Generator()).action for flag in (True, False)
    ]
    assert torch.equal(*acts)
    assert bool(((acts[0] >= torch.tensor(low)) & (acts[0] <= torch.tensor(high))).all())
    action, vjp = actor.evaluate(seen)
    torch.testing.assert_close(actor.scale.to_environment(action), acts[0])
    vjp(torch.ones_like(action))
    (expected,) = torch.autograd.grad(actor.unit_action(seen).sum(), actor.mean.bias)
    torch.testing.assert_close(actor.mean.bias.grad, expected)


def test_target_policy_smoothing_is_clipped_twice() -> None:
    noise = torch.tensor([[0.1, 9.0, -9.0, 9.0]])
    found = smoothed(torch.tensor([[0.0, 0.0, 0.0, 0.8]]), noise, std=0.2, clip=0.5)
    torch.testing.assert_close(found, torch.tensor([[0.02, 0.5, -0.5, 1.0]]))
    assert smoothed(torch.tensor([[0.3]]), torch.ones(1, 1), std=0.0, clip=0.0).item() == pytest.approx(0.3)
