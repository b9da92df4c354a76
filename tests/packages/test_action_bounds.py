"""Settings of SAC and TQC for robots: action bounds, a small initial deviation, and n-step targets at time limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk_envs.toy import AnySpaceEnv
from tests.peers.test_known_defects import Counted
from tests.tables import in_one_test

SMALL: dict[str, Any] = {"seed": 0, "learning_starts": 50, "buffer_size": 500, "batch_size": 16}
NOISE = {"kind": "normal", "mean": 0.0, "sigma": 0.5}
SEEN = spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize("name", ["sac", "tqc"])
def test_no_action_leaves_the_bounds(name: str, tmp_path: Path) -> None:
    """Actions of the warm-up, of the policy and with action noise stay within the bounds, also after loading."""
    model = rlsdk.make(name, env="Pendulum-v1", action_bounds=(-0.5, 0.25), action_noise=NOISE, **SMALL).learn(120)
    memory: Any = model.replay_buffer
    actions = memory.at(torch.arange(120)).action
    for part in (actions[:50], actions[50:]):
        assert float(part.min()) < -0.4
        assert float(part.max()) > 0.2
        assert -0.5 <= float(part.min()) < float(part.max()) <= 0.25
    loaded = rlsdk.load(model.save(tmp_path / "agent"))
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    for agent in (model, loaded):
        found = agent.predict(observations, deterministic=False)[0]
        assert found.min() >= -0.5
        assert found.max() <= 0.25
    np.testing.assert_array_equal(model.predict(observations)[0], loaded.predict(observations)[0])


def test_bounds_make_an_unbounded_space_one_to_explore() -> None:
    env = AnySpaceEnv(SEEN, spaces.Box(-np.inf, np.inf, (2,), np.float32))
    assert rlsdk.make("sac", env=env, action_bounds=(-3.0, 3.0), **SMALL).learn(60).num_timesteps == 60


@in_one_test
@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "ddpg"])
@pytest.mark.parametrize("high", [float(np.finfo(np.float32).max), 1e20, 1e308, np.inf])
def test_numbers_that_stand_for_infinity_are_no_bounds(name: str, high: float) -> None:
    """An action of 3e38 would be the consequence, or NaN."""
    kind: Any = np.float64 if high == 1e308 else np.float32
    env = AnySpaceEnv(SEEN, spaces.Box(np.array([-1.0, -high], kind), np.array([1.0, high], kind), dtype=kind))
    with pytest.raises(UnsupportedSpaceError, match=r"finite bounds.*at most 1e\+18, got low"):
        rlsdk.make(name, env=env, **SMALL)
    if name in ("sac", "tqc"):
        assert rlsdk.make(name, env=env, action_bounds=(-1.0, 1.0), **SMALL).learn(60).num_timesteps == 60
    actions = rlsdk.make("ppo", env=env, n_steps=32, batch_size=32).predict(np.zeros((50, 2), np.float32))[0]
    assert np.abs(actions).max() < 10.0


@pytest.mark.parametrize("name", ["sac", "tqc"])
@pytest.mark.parametrize("std", [0.05, 0.5])
def test_the_first_deviation_is_the_given_one(name: str, std: float) -> None:
    model: Any = rlsdk.make(name, env="Pendulum-v1", policy_kwargs={"initial_std": std}, **SMALL)
    zeros, ones = torch.zeros(64, 1), torch.ones(64, 1)
    features = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mean, shifted = (
            model.policy.evaluate(model.policy.encoder(features), each)[0][0].atanh() for each in (zeros, ones)
        )
    torch.testing.assert_close(shifted - mean, torch.full_like(mean, std), atol=1e-4, rtol=1e-3)
    before = model.policy.log_std.weight.clone()
    model.learn(60)
    assert not torch.equal(before, model.policy.log_std.weight), "it is learned from there"


@in_one_test
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action_bounds": (-5.0, 5.0)}, "not inside the action space, which goes from -2 to 2"),
        ({"action_bounds": (1.0, 0.0)}, "two numbers, the lower one first"),
        ({"action_bounds": "narrow"}, "two numbers, the lower one first"),
        ({"action_bounds": (0.0, float("nan"))}, "two numbers, the lower one first"),
        ({"policy_kwargs": {"initial_std": 0.0}}, "initial_std = 0.0"),
        ({"policy_kwargs": {"initial_std": 0.3}, "use_sde": True}, "leave initial_std out"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        rlsdk.make("sac", env="Pendulum-v1", **SMALL, **settings)


@pytest.mark.parametrize("name", ["dqn", "qrdqn", "sac", "tqc", "td3", "ddpg"])
def test_targets_of_several_steps_know_time_limits(name: str) -> None:
    """An n-step target stops at the end of its episode. After a termination its discount is 0. After a time limit it
    uses the final observation, discounted by the number of steps taken."""
    env = Counted(discrete="Discrete" in rlsdk.registry.find(name).manifest.actions)
    settings = {**SMALL, "learning_starts": 100, "gamma": 0.5, "n_steps": 3, "train_freq": 1}
    model: Any = rlsdk.make(name, env=env, **settings).learn(36)
    batch = model.replay_buffer.at(torch.arange(30))
    now, after = batch.observation.features, batch.next_observation.features
    steps = 3 - now[:, 1]  # episodes have three steps
    terminated = now[:, 0] % 2 == 0
    assert torch.equal(after[:, 0], now[:, 0])
    assert bool((after[:, 1] == 3).all())
    torch.testing.assert_close(batch.discount, torch.where(terminated, 0.0, 0.5**steps))
    torch.testing.assert_close(batch.reward, -(2.0 - 0.5 ** (steps - 1)))
