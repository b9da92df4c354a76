"""The evaluator compared with plain loops, and statistics compared with scipy and numpy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.environments.vector.connected import seed_of
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import Evaluation, evaluate_policy, run_episodes
from rlsdk.records import Episode
from rlsdk_envs import Monitor
from rlsdk_envs.toy import IdentityEnvBox
from rlsdk_tqc import TQC


def agent(**settings: Any) -> TQC:
    small = {"buffer_size": 300, "learning_starts": 20, "batch_size": 8, "seed": 3, "policy_kwargs": {"net_arch": [8]}}
    return TQC("MlpPolicy", IdentityEnvBox(episode_length=5), **{**small, **settings})


@pytest.mark.full
@pytest.mark.parametrize("normalize", [False, True])
def test_a_thousand_episodes_equal_a_loop_by_hand(normalize: bool) -> None:
    model = agent(normalize=normalize).learn(60)
    env = IdentityEnvBox(episode_length=5)
    expected = []
    seen, _ = env.reset(seed=seed_of(7, 0))
    for _ in range(1000):
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(seen, deterministic=True)
            seen, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        expected.append(total)
        seen, _ = env.reset()
    result = run_episodes(model, Monitor(IdentityEnvBox(episode_length=5)), 1000, seed=7)
    assert result.returns == expected
    assert result.lengths == [5] * 1000


class Unequal(gymnasium.Env[Any, Any]):
    """Good episodes are long and bad ones short: an evaluator that takes the first episodes to end would be too pessimistic."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.length = 20 if self.np_random.random() < 0.5 else 1
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t >= self.length, False, {}


def test_short_episodes_do_not_crowd_out_long_ones() -> None:
    model = TQC("MlpPolicy", Unequal(), buffer_size=10, seed=1)
    result = run_episodes(model, make_vec_env(Unequal, 8), 400, seed=3)
    per_env = [sum(e.env == i for e in result.episodes) for i in range(8)]
    assert per_env == [50] * 8
    error = result.std / 400**0.5
    assert abs(result.mean - 10.5) < 4 * error  # the mean of the first 400 episodes to end would be near 2


def test_success_rate() -> None:
    values = np.random.default_rng(1).normal(10.0, 3.0, 40)
    episodes = tuple(Episode(0, float(v), 1, v > 10) for v in values)
    evaluation = Evaluation(episodes, True)
    assert evaluation.success_rate == pytest.approx((values > 10).mean())


def test_results_per_episode_and_thresholds() -> None:
    model, env = agent(), IdentityEnvBox(episode_length=5)
    returns, lengths = evaluate_policy(model, env, 4, return_episode_rewards=True)
    assert (len(returns), lengths) == (4, [5, 5, 5, 5])
    seen: list[Any] = []
    mean, std = evaluate_policy(model, env, 3, callback=lambda scope, _: seen.append(scope["reward"]))
    assert mean == pytest.approx(np.sum(seen) / 3)
    with pytest.raises(SettingsError, match="below reward_threshold"):
        evaluate_policy(model, env, 2, reward_threshold=1e9)
    assert std >= 0.0
    assert torch.is_grad_enabled()
