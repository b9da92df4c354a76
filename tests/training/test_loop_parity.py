"""Whole trainings of off-policy agents and of their peers, step by step: the same rows, the same updates between them.

Both begin with the same weights and draw the same random numbers. Parity tests of the packages compare single updates; this
one compares the order of acting, exploring, storing and learning, the number of updates, and time limits.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
from benchmarks.equal_numbers import twin
from tests.peer_updates import distance

pytest.importorskip("sb3_contrib")
import sb3_contrib
import stable_baselines3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

LIMIT = 35
"""Steps of an episode before it is cut off."""
COMMON: dict[str, Any] = {
    "learning_starts": 50,
    "batch_size": 16,
    "buffer_size": 1000,
    "policy_kwargs": {"net_arch": [32, 32]},
}
DISCRETE: dict[str, Any] = {"learning_rate": 1e-3, "exploration_fraction": 0.8}
PEERS = {
    "sac": stable_baselines3.SAC,
    "td3": stable_baselines3.TD3,
    "ddpg": stable_baselines3.DDPG,
    "dqn": stable_baselines3.DQN,
    "qrdqn": sb3_contrib.QRDQN,
    "tqc": sb3_contrib.TQC,
    "crossq": sb3_contrib.CrossQ,
}
NOISE = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "SAC": ("sac", "Pendulum-v1", 1, {}),
    "SAC, two environments": ("sac", "Pendulum-v1", 2, {"train_freq": 2, "gradient_steps": 3, "ent_coef": 0.1}),
    "TQC": ("tqc", "Pendulum-v1", 1, {"train_freq": 2}),
    "CrossQ": ("crossq", "Pendulum-v1", 1, {}),
    "TD3": ("td3", "Pendulum-v1", 1, {"action_noise": NOISE}),
    "TD3, two environments": ("td3", "Pendulum-v1", 2, {"gradient_steps": -1}),
    "DDPG, a round of four steps": (
        "ddpg",
        "Pendulum-v1",
        1,
        {"train_freq": 4, "gradient_steps": 2, "action_noise": NOISE},
    ),
    "DQN": ("dqn", "CartPole-v1", 1, {**DISCRETE, "train_freq": 4, "target_update_interval": 25}),
    "QR-DQN": ("qrdqn", "CartPole-v1", 1, {**DISCRETE, "train_freq": 2, "target_update_interval": 20}),
    "DQN, two environments": ("dqn", "CartPole-v1", 2, {**DISCRETE, "gradient_steps": 3, "target_update_interval": 30}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_whole_training_is_that_of_the_peer(case: str) -> None:
    algorithm, name, count, settings = CASES[case]
    # batch normalization enlarges rounding errors, so CrossQ makes fewer updates
    steps = count * (80 if algorithm == "crossq" else 140)
    envs = [lambda: gym.make(name, max_episode_steps=LIMIT)] * count
    peer = PEERS[algorithm](
        "MlpPolicy", DummyVecEnv(envs), seed=0, device="cpu", **copy.deepcopy({**COMMON, **settings})
    )
    with twin(peer, algorithm, envs, 0) as ours:
        ours.learn(steps)
    peer.learn(steps)

    assert ours._n_updates == peer._n_updates > 20
    rows, stored = len(ours.parts.buffer) // count, ours.parts.buffer.storage
    assert rows == peer.replay_buffer.pos
    assert np.allclose(peer.replay_buffer.observations[:rows], stored["observation"].features[:rows], atol=1e-3)
    assert np.allclose(peer.replay_buffer.rewards[:rows], stored["reward"][:rows], atol=1e-3)
    assert distance(ours, peer, ours.spec.from_sb3) < 2e-4


class Layer(torch.nn.Module):
    """A features extractor with one layer, for either library."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.features_dim, self.layer = 4, torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_a_shared_target_encoder_moves_once_per_update(name: str) -> None:
    """The peer moves it as a part of the target actor and again as a part of the target critics: 1 - (1 - tau)^2."""
    networks = {"net_arch": [4], "share_features_extractor": True, "features_extractor_class": Layer}
    common: dict[str, Any] = {"tau": 0.1, "learning_rate": 1e-12, "batch_size": 4, "learning_starts": 8, "seed": 0}
    common |= {"policy_kwargs": networks, "device": "cpu"} | ({"policy_delay": 1} if name == "td3" else {})
    ours = rlsdk.make(name, env="Pendulum-v1", **common)
    theirs = PEERS[name]("MlpPolicy", "Pendulum-v1", **common)
    update: Any = ours.parts.algorithm
    policy = theirs.policy
    targets = [update.actor_target.network.encoder, update.trained.target.network.encoder]
    assert policy.actor_target.features_extractor is policy.critic_target.features_extractor
    for target in (*targets, policy.actor_target.features_extractor):
        for parameter in target.parameters():
            parameter.data.add_(1.0)
    for model in (ours, theirs):
        model.learn(9)  # one update, whose rate is so small that only the targets move
    for online, encoders, left in (
        (update.actor.encoder, targets, 0.9),
        (policy.actor.features_extractor, [policy.actor_target.features_extractor], 0.81),
    ):
        for encoder in encoders:
            for one, other in zip(online.parameters(), encoder.parameters(), strict=True):
                torch.testing.assert_close(other - one, torch.full_like(one, left), rtol=1e-4, atol=1e-4)
