"""Filler rows of next-step autoreset do not enter statistics, which equal those of same-step autoreset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import rlsdk
from rlsdk.networks.normalizer import RunningMoments
from rlsdk.preprocessing.normalizer import RewardScale
from rlsdk.settings.agent_config import Normalization
from rlsdk_testing.rollouts import rollout_of

SMALL: dict[str, dict[str, Any]] = {
    "trpo": {"n_steps": 6, "batch_size": 6},
    "qrdqn": {"train_freq": 6, "learning_starts": 10**6, "buffer_size": 200},
}


class Numbered(gymnasium.Env[Any, Any]):
    """Every observation is a different number, far from 0. Rewards depend on the step, and actions have no effect."""

    observation_space = spaces.Dict(
        {
            "number": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            "clock": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        }
    )
    action_space = spaces.Discrete(2)

    def __init__(self, length: int, offset: float) -> None:
        self.length, self.seen = length, offset

    def observation(self) -> Any:
        self.seen += 1.0
        return {
            "number": np.array([self.seen], np.float32),
            "clock": np.array([self.now, self.now == self.length], np.float32) * 50.0,
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        return self.observation(), 3.0 - self.now, False, self.now == self.length, {}


def vector(mode: AutoresetMode, lengths: list[int]) -> SyncVectorEnv:
    makers = [lambda n=n, i=i: Numbered(n, 100.0 * i) for i, n in enumerate(lengths)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def trained(name: str, mode: AutoresetMode, lengths: list[int], steps: int, **more: Any) -> Any:
    agent = rlsdk.make(
        name, env=vector(mode, lengths), policy="MultiInputPolicy", normalize=True, seed=0, **SMALL[name] | more
    )
    return agent.learn(steps * len(lengths))


@pytest.mark.parametrize("stack", [1, 2])
@pytest.mark.parametrize("name", list(SMALL))
def test_statistics_are_those_of_same_step_environments(name: str, stack: int) -> None:
    """Six episodes of two steps take 12 steps with same-step autoreset and 18 with next-step autoreset."""
    one = trained(name, AutoresetMode.SAME_STEP, [2, 2], 12, frame_stack=stack)
    other = trained(name, AutoresetMode.NEXT_STEP, [2, 2], 18, frame_stack=stack)
    # the last step with next-step autoreset is a reset, which same-step autoreset does within its last step
    for path, moments in one.normalizer.moments.items():
        found = other.normalizer.moments[path]
        assert found.count == pytest.approx(moments.count)
        np.testing.assert_allclose(found.mean, moments.mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, moments.variance, rtol=1e-9)
    mine, theirs = (agent.normalizer.rewards.moments for agent in (other, one))
    assert mine.count == pytest.approx(theirs.count)
    assert float(mine.variance) == pytest.approx(float(theirs.variance))
    returns = np.tile([2.0, 2.0 * 0.99 + 1.0], 12)
    assert float(mine.variance) == pytest.approx(returns.var(), abs=1e-3)


def test_statistics_are_those_of_the_peers_wrapper() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    ours = trained("trpo", AutoresetMode.NEXT_STEP, [3, 3], 24)
    theirs = VecNormalize(DummyVecEnv([lambda i=i: Numbered(3, 100.0 * i) for i in range(2)]), gamma=0.99)
    theirs.reset()
    for _ in range(17):
        theirs.step(np.zeros(2, np.int64))
    # statistics of the observations acted on
    seen = {key: (rms.mean.copy(), rms.var.copy()) for key, rms in theirs.obs_rms.items()}
    theirs.step(np.zeros(2, np.int64))
    for key in ("number", "clock"):
        moments = ours.normalizer.moments[f"observation[{key!r}]"]
        np.testing.assert_allclose(moments.mean, seen[key][0], rtol=1e-6)
        np.testing.assert_allclose(moments.variance, seen[key][1], rtol=1e-6)
    assert float(ours.normalizer.rewards.moments.variance) == pytest.approx(float(theirs.ret_rms.var))


def test_episodes_of_different_lengths_count_every_observation_that_was_acted_on() -> None:
    lengths, steps = [1, 4], 20
    agent = trained("qrdqn", AutoresetMode.NEXT_STEP, lengths, steps, train_freq=4)
    twins, seen = [Numbered(n, 100.0 * i) for i, n in enumerate(lengths)], list[float]()
    for twin in twins:
        newest = twin.reset()[0]
        for _ in range(steps):
            if twin.now == twin.length:
                newest = twin.reset()[0]
            else:
                seen.append(float(newest["number"][0]))
                newest = twin.step(0)[0]
    moments = agent.normalizer.moments["observation['number']"]
    assert moments.count == pytest.approx(len(seen), abs=1e-3)
    assert float(moments.mean[0]) == pytest.approx(np.mean(seen), rel=1e-5)


def test_final_observations_are_normalized_as_those_acted_on() -> None:
    """Final observations are normalized with the statistics from before the rollout, as all other observations are."""
    agent = trained("trpo", AutoresetMode.SAME_STEP, [2], 6)
    leaf = agent.normalizer.observations.moments["observation['number']"]
    before = leaf.center.clone(), leaf.deviation.clone()
    rollout = rollout_of(agent, 4)
    assert not torch.equal(leaf.center, before[0])
    finals = rollout.final_observations
    assert finals is not None
    raw = finals.observation.features["number"] * before[1] + before[0]
    assert raw.double().numpy() == pytest.approx(np.round(raw.double().numpy()), abs=1e-3), "whole numbers"
    acted = rollout.steps.observation.features["number"][1:2] * before[1] + before[0]
    assert float(raw[0, 0]) == pytest.approx(float(acted[0, 0, 0]) + 1.0, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 999))
def test_returns_without_filler_rows_by_hand(steps: list[int], envs: int, seed: int) -> None:
    """Statistics of returns do not depend on rewards of filler rows, in rollouts of any length."""
    generator = torch.Generator().manual_seed(seed)
    shape = sum(steps), envs
    reward, ended = torch.randn(shape, generator=generator) * 7.0 + 3.0, torch.rand(shape, generator=generator) < 0.4
    valid = torch.ones(shape, dtype=torch.bool)
    for t in range(1, shape[0]):
        valid[t] = ~(ended[t - 1] & valid[t - 1])
    ended &= valid
    scale, found = RewardScale(Normalization(), 0.9, envs), []
    never = torch.zeros_like(ended)
    for parts in zip(*(column.split(steps) for column in (reward, ended, never, valid)), strict=True):
        found += scale.observe(*parts)[:, 0].tolist()
    running, plain, expected = np.zeros(envs), RunningMoments(()), []
    for t in range(shape[0]):
        counted = valid[t].numpy()
        running = np.where(counted, running * 0.9 + reward[t].double().numpy(), running)
        for value in running[counted]:
            plain.update(torch.tensor([value], dtype=torch.float64))
        expected.append(float(np.sqrt(plain.variance + 1e-8)))
        running = np.where(ended[t].numpy(), 0.0, running)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    np.testing.assert_allclose(scale.returns, running, atol=1e-9)
