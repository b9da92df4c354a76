"""The kernels for RMSprop, RAdam and epsilon-greedy acting return exactly the results of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, nn

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.kernels import kernels_off
from rlsdk.kernels.factory import compiled_off
from rlsdk.records import Observation
from rlsdk.updates import FlatOptimizer
from tests.tables import in_one_test


@pytest.mark.parametrize("arguments", [{}, {"alpha": 0.9, "eps": 1e-3}, {"momentum": 0.5}, {"centered": True}])
def test_rmsprop(arguments: dict[str, Any]) -> None:
    with compiled_off():
        require_steps_of_torch("rmsprop", arguments, 0.0)


@pytest.mark.parametrize("arguments", [{}, {"alpha": 0.9, "eps": 1e-3}])
def test_compiled_rmsprop(arguments: dict[str, Any]) -> None:
    """Torch's vector library rounds some square roots differently, here on an AMD processor."""
    require_steps_of_torch("rmsprop", arguments, 1e-6)


UNUSUAL: list[dict[str, Any]] = [
    {"weight_decay": 0.1},
    {"maximize": True},
    {"decoupled_weight_decay": True, "weight_decay": 0.1},
]


@pytest.mark.parametrize("arguments", [{}, {"betas": (0.5, 0.99), "eps": 1e-3}, *UNUSUAL])
def test_radam(arguments: dict[str, Any]) -> None:
    """The first five steps do not divide by the deviation, the others do. Steps with unusual options are made by torch."""
    require_steps_of_torch("radam", arguments, 2e-6, steps=12)
    with compiled_off():
        require_steps_of_torch("radam", arguments, 0.0)


def require_steps_of_torch(choice: str, arguments: dict[str, Any], tolerance: float, steps: int = 5) -> None:
    """Some steps of the kernel are those of torch, up to a relative difference."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    flat = FlatOptimizer(ours, choice, 0.01, arguments)
    with kernels_off():
        plain = FlatOptimizer(theirs, choice, 0.01, arguments)
    for step in range(steps):
        for optimizer in (flat, plain):
            optimizer.zero_grad()
            optimizer.gradients.copy_(torch.arange(8.0) - step)
            optimizer.step(0.01 / (step + 1))
        torch.testing.assert_close(ours.weight, theirs.weight, rtol=tolerance, atol=0.1 * tolerance)
    one, two = flat.state_dict(), plain.state_dict()
    assert one.keys() == two.keys()
    for name in one:
        mine, other = torch.as_tensor(one[name]), torch.as_tensor(two[name])
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=0.0)


QUANTILES = [("dqn", {}), ("qrdqn", {"n_quantiles": 7}), ("qrdqn", {"n_quantiles": 200})]


@in_one_test
@pytest.mark.parametrize(("name", "policy_kwargs"), QUANTILES)
@pytest.mark.parametrize("rows", [1, 5, 32, 33])
@pytest.mark.parametrize("deterministic", [False, True])
def test_epsilon_greedy_actions_and_random_numbers(
    name: str, policy_kwargs: dict[str, Any], rows: int, deterministic: bool
) -> None:
    def acted() -> tuple[list[torch.Tensor], torch.Tensor]:
        env = make_vec_env("CartPole-v1", 1)
        policy = rlsdk.make(name, env=env, seed=0, buffer_size=10, policy_kwargs=policy_kwargs).policy
        policy.epsilon.fill_(0.5)
        generator, numbers, found = Generator().manual_seed(1), Generator().manual_seed(2), []
        for _ in range(20):
            seen = Observation(torch.randn(rows, 4, generator=numbers), torch.zeros(rows, dtype=torch.bool), None)
            found.append(policy.act(seen, (), deterministic=deterministic, generator=generator).action)
        return found, generator.get_state()

    with kernels_off():
        expected, after = acted()
    actions, state = acted()
    assert all(torch.equal(one, two) and one.dtype is two.dtype for one, two in zip(actions, expected, strict=True))
    assert torch.equal(state, after)
