"""Reward scaling: whole rollouts give the same result as single steps; statistics, signs and recorded rewards."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.kernels.reference import FEW
from rlsdk.math.surrogate import discounted_sums
from rlsdk.networks.normalizer import FIRST_COUNT, RunningMoments
from rlsdk.preprocessing.normalizer import RewardScale
from rlsdk.records import Rollout, StepData
from rlsdk.settings.agent_config import Normalization
from rlsdk_datasets import RecordedOnly
from rlsdk_envs.toy import ChainEnv, IdentityEnv
from rlsdk_interchange.recorded_data import remember
from rlsdk_qrdqn import QRDQN


def scale(**given: Any) -> RewardScale:
    return RewardScale(Normalization(**given), 0.9, 2)


def rollout(reward: torch.Tensor, ended: torch.Tensor) -> Rollout[Any, Any]:
    nothing: Any = ()
    steps = StepData(nothing, nothing, reward, ended, torch.zeros_like(ended), torch.ones_like(ended), nothing)
    return Rollout(steps, (), nothing, ())


def one_by_one(reward: torch.Tensor, ended: torch.Tensor, gamma: float) -> np.ndarray[Any, Any]:
    """Standard deviations [T] of all discounted returns so far, computed from scratch after each step."""
    running, seen, found = np.zeros(reward.shape[1]), list[float](), []
    for row, over in zip(reward.double().numpy(), ended.numpy(), strict=True):
        running = running * gamma + row
        seen += running.tolist()
        running = np.where(over, 0.0, running)
        weights = np.array([FIRST_COUNT, *np.ones(len(seen))])
        values = np.array([0.0, *seen])
        mean = np.average(values, weights=weights)
        spread = np.average((values - mean) ** 2, weights=weights) + FIRST_COUNT / weights.sum()
        found.append(np.sqrt(spread + 1e-8))
    return np.array(found)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    envs=st.sampled_from([1, 2, FEW + 1]),
    offset=st.sampled_from([0.0, 100.0, -1e4]),
    seed=st.integers(0, 1000),
)
def test_rollouts_give_what_single_steps_would(steps: list[int], envs: int, offset: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    reward = offset + torch.randn(sum(steps), envs, generator=generator)
    ended = torch.rand(sum(steps), envs, generator=generator) < 0.2
    rewards = RewardScale(Normalization(), 0.9, envs)
    deviations, given = one_by_one(reward, ended, 0.9), []
    for part, over in zip(reward.split(steps), ended.split(steps), strict=True):
        given.append(rewards.update(rollout(part, over), keeps_raw=False).steps.reward)
    expected = np.clip(reward.double().numpy() / deviations[:, None], -10.0, 10.0)
    assert torch.cat(given).double().numpy() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert torch.cat(given).dtype == torch.float32
    assert rewards.moments.count == pytest.approx(FIRST_COUNT + reward.numel())


def test_small_deviations_of_large_returns_do_not_cancel() -> None:
    moments = RunningMoments(())
    values = 1e8 + np.random.default_rng(0).normal(size=(500, 3))
    moments.mean_variance, moments.count = (values[:1, 0], np.zeros(1)), 1.0
    found = moments.update_each(values)
    everything = np.concatenate([values[:1, 0], values.ravel()])
    assert found[-1] == pytest.approx(everything.var(), rel=1e-6)
    assert float(moments.mean) == pytest.approx(everything.mean(), rel=1e-15)


def test_frozen_statistics_stay_and_still_scale() -> None:
    rewards = scale()
    reward, ended = torch.randn(50, 2) * 30.0, torch.zeros(50, 2, dtype=torch.bool)
    rewards.update(rollout(reward, ended), keeps_raw=False)
    before = rewards.state_dict()
    rewards.training = False
    found = rewards.update(rollout(reward, ended), keeps_raw=False).steps.reward
    assert torch.allclose(found, rewards.normalize(reward))
    assert rewards.normalize(reward[0, 0]).shape == rewards.denormalize(reward[0, 0]).shape == ()
    assert torch.allclose(rewards.denormalize(found), reward, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in rewards.state_dict().items())


def test_signs_and_rewards_left_alone() -> None:
    reward, ended = torch.tensor([[3.0, -0.5], [0.0, 7.0]]), torch.zeros(2, 2, dtype=torch.bool)
    signs = scale(norm_reward=False, sign_reward=True).update(rollout(reward, ended), keeps_raw=False)
    assert signs.steps.reward.tolist() == [[1.0, -1.0], [0.0, 1.0]]
    assert scale(norm_reward=False).update(rollout(reward, ended), keeps_raw=False).steps.reward is reward
    assert scale().update(rollout(reward, ended), keeps_raw=True).steps.reward is reward


@pytest.mark.parametrize("envs", [1, FEW + 1])
def test_discounted_sums_by_hand(envs: int) -> None:
    value = torch.tensor([1.0, 2.0, 4.0]).unsqueeze(1).expand(3, envs)
    weight = torch.tensor([0.5, 0.0, 9.0]).unsqueeze(1).expand(3, envs)
    assert discounted_sums(value, weight)[:, -1].tolist() == [2.0, 2.0, 4.0]


def recordings(rewards: list[float]) -> list[dict[str, Any]]:
    count = len(rewards)
    flags = np.zeros(count, bool)
    seen, actions = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    return [
        {"observations": seen, "actions": actions, "rewards": rewards, "terminations": flags, "truncations": flags}
    ] * 3


def test_recorded_rewards_are_prepared_as_played_ones_are() -> None:
    env, small = IdentityEnv(4), {"buffer_size": 100, "policy_kwargs": {"n_quantiles": 5, "net_arch": [8]}, "seed": 0}
    only = RecordedOnly(env.observation_space, env.action_space)
    for setting, expected in (
        ({"sign_reward": True, "norm_reward": False}, {1.0, -1.0}),
        ({"norm_reward": True}, None),
    ):
        model = QRDQN("MlpPolicy", only, normalize={"norm_obs": False, **setting}, **small)
        remember(model, recordings([20.0, -40.0, 20.0]))
        found = model.parts.sample(64, torch.Generator().manual_seed(0)).reward
        if expected is None:
            assert model.normalizer is not None
            assert model.normalizer.rewards.moments.count == pytest.approx(9.0, abs=1e-3)
            assert 0.3 < float(found.abs().mean()) < 3.0
        else:
            assert set(found.tolist()) == expected


def test_normalizing_leaves_the_parts_themselves() -> None:
    """With normalization, `model.parts` still contains the plugin's own policy and algorithm, without wrappers."""
    model = rlsdk.make("trpo", env=make_vec_env(lambda: ChainEnv(5), 1), normalize=True, n_steps=32, seed=0)
    model.learn(64)
    algorithm: Any = model.parts.algorithm
    assert algorithm.updates == model.cursor.updates == 2  # type: ignore[union-attr]
    assert type(algorithm).__module__.startswith("rlsdk_trpo")
    assert algorithm.network is model.policy
    assert copy.deepcopy(algorithm).updates == 2


def test_a_normalizing_memory_can_be_copied() -> None:
    model = rlsdk.make("tqc", env=make_vec_env("Pendulum-v1", 1), normalize=True, buffer_size=50, seed=0).learn(10)
    assert len(copy.deepcopy(model.parts.buffer)) == 10  # type: ignore[arg-type]


def test_returns_begin_anew_where_environments_do() -> None:
    model = rlsdk.make("trpo", env=make_vec_env(lambda: ChainEnv(50), 1), normalize=True, n_steps=8, seed=0).learn(8)
    assert model.normalizer is not None
    rewards = model.normalizer.rewards
    rewards.returns[:] = 1e6
    model.learn(8)
    assert rewards.returns[0] > 1e5, "an episode that continues keeps its return"
    model.set_env(model.env, force_reset=True)
    model.learn(8)
    assert abs(rewards.returns[0]) < 100.0
