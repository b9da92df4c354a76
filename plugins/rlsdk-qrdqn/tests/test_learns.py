"""QR-DQN learns, explores as documented, and moves its target network on time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.networks import uses_nature_cnn
from rlsdk.registry import preset
from rlsdk_envs.toy import (
    FakeImageEnv,
    IdentityEnv,
    IdentityEnvMultiDiscrete,
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiDiscrete,
)
from rlsdk_qrdqn import QRDQN

QUICK: dict[str, Any] = {
    "learning_rate": 3e-3,
    "learning_starts": 100,
    "target_update_interval": 50,
    "buffer_size": 5000,
    "exploration_fraction": 0.3,
    "seed": 0,
    "policy_kwargs": {"n_quantiles": 10},
}


def test_identity_is_learned() -> None:
    model = QRDQN("MlpPolicy", IdentityEnv(4), gamma=0.0, train_freq=1, **QUICK).learn(2000)
    assert run_episodes(model, IdentityEnv(4), 5, seed=1).mean > 95.0


def test_several_choices_are_learned_each_by_itself() -> None:
    env = IdentityEnvMultiDiscrete(3)
    model = QRDQN("MlpPolicy", env, gamma=0.0, train_freq=1, **QUICK).learn(2500)
    assert run_episodes(model, IdentityEnvMultiDiscrete(3), 5, seed=1).mean > 90.0


def test_masks_of_several_choices_are_obeyed() -> None:
    class Strict(InvalidActionEnvMultiDiscrete):
        def step(self, action: Any) -> Any:
            sizes, masks = list(self.action_space.nvec), self.action_masks()  # type: ignore[attr-defined]
            parts = np.split(np.asarray(masks), np.cumsum(sizes)[:-1])
            assert all(part[value] for part, value in zip(parts, action, strict=True))
            return super().step(action)

    env = make_vec_env(lambda: Strict(5, 4), 2, vectorization="sync")
    QRDQN("MlpPolicy", env, gamma=0.3, train_freq=1, **QUICK).learn(600)


def test_masks_are_obeyed_from_the_first_step_on() -> None:
    class Strict(InvalidActionEnvDiscrete):
        def step(self, action: Any) -> Any:
            assert self.action_masks()[action]
            return super().step(action)

    env = make_vec_env(lambda: Strict(12, 9), 2, vectorization="sync")
    model = QRDQN("MlpPolicy", env, gamma=0.3, train_freq=1, **QUICK).learn(3000)
    batch = model.parts.buffer.sample(200, torch.Generator().manual_seed(0))  # type: ignore[union-attr]
    assert bool(batch.observation.action_mask.gather(1, batch.action[:, None]).all())
    assert bool((batch.next_observation.action_mask.sum(1) == 3).all())
    assert run_episodes(model, Strict(12, 9), 3, seed=1).mean > 80.0


@pytest.mark.parametrize("n_envs", [1, 4])
def test_the_target_moves_and_exploration_falls_with_environment_steps(n_envs: int) -> None:
    env = make_vec_env("CartPole-v1", n_envs, vectorization="sync")
    settings = {**QUICK, "exploration_fraction": 0.5, "exploration_final_eps": 0.2, "target_update_interval": 100}
    model = QRDQN("MlpPolicy", env, train_freq=4, **settings)
    seen: list[tuple[int, float, int]] = []

    def note(run: Any, report: Any) -> None:
        algorithm = run.agent.parts.algorithm
        seen.append((run.num_timesteps, float(model.policy.epsilon), algorithm.target_updates))

    model.learn(800, callback=LambdaCallback(on_report=note))
    for steps, epsilon, updates in seen:
        assert epsilon == pytest.approx(max(0.2, 1.0 - 0.8 * steps / 400), abs=1e-6)
        assert updates == steps // 100


def test_predict_explores_only_when_asked() -> None:
    model = QRDQN("CnnPolicy", FakeImageEnv(action_space=IdentityEnv(5).action_space), buffer_size=100, seed=0)
    seen = model.observation_space.sample()
    greedy = {int(model.predict(seen, deterministic=True)[0]) for _ in range(20)}
    explored = {int(model.predict(seen)[0]) for _ in range(80)}
    assert len(greedy) == 1
    assert explored == set(range(5))
    assert uses_nature_cnn(model.policy.encoder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cart_pole(seed: int) -> None:
    tuned = preset("qrdqn", "CartPole-v1")
    assert tuned is not None
    model = QRDQN("MlpPolicy", "CartPole-v1", seed=seed, **tuned.settings).learn(50_000)
    assert run_episodes(model, "CartPole-v1", 50, seed=9).mean >= 300.0
