"""Whole trainings of off-policy agents and of stable-baselines3, step by step: the same rows, the same updates between them.

Both begin with the same weights. They get the same random actions, starts of episodes and positions in the replay buffer, and
no other noise. Parity tests of the packages compare single updates; this one compares the order of acting, storing and
learning, the number of updates, and time limits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
import rlsdk.exploration.behavior
from rlsdk.environments import make_vec_env
from rlsdk_interchange.sb3 import import_sb3
from tests.peer_updates import distance

pytest.importorskip("sb3_contrib")
import sb3_contrib
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv

BATCH, START, LIMIT = 16, 50, 35
"""Rows of a batch, random steps before learning, steps of an episode before it is cut off."""
COMMON = {"learning_starts": START, "batch_size": BATCH, "buffer_size": 1000, "policy_kwargs": {"net_arch": [32, 32]}}
GREEDY = {"learning_rate": 1e-3, "exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
PEERS = {
    "td3": stable_baselines3.TD3,
    "ddpg": stable_baselines3.DDPG,
    "dqn": stable_baselines3.DQN,
    "qrdqn": sb3_contrib.QRDQN,
}
CASES = {
    "TD3": ("td3", "Pendulum-v1", 1, {"target_policy_noise": 1e-9, "policy_delay": 2}),
    "TD3, two environments": ("td3", "Pendulum-v1", 2, {"target_policy_noise": 1e-9, "gradient_steps": -1}),
    "DDPG, a round of three steps": ("ddpg", "Pendulum-v1", 1, {"train_freq": 3, "gradient_steps": 2}),
    "DQN": ("dqn", "CartPole-v1", 1, {**GREEDY, "train_freq": 4, "target_update_interval": 25}),
    "QR-DQN": ("qrdqn", "CartPole-v1", 1, {**GREEDY, "train_freq": 2, "target_update_interval": 20}),
    "DQN, two environments": ("dqn", "CartPole-v1", 2, {**GREEDY, "gradient_steps": 3, "target_update_interval": 30}),
}


class Numbered(gym.Wrapper[Any, Any, Any, Any]):
    """Begins its episodes with the seeds `begun` + 1, `begun` + 2, ..."""

    begun = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.begun += 1
        return self.env.reset(seed=self.begun)


def numbered(name: str, count: int) -> list[Numbered]:
    return [Numbered(gym.make(name, max_episode_steps=LIMIT)) for _ in range(count)]


def functions(envs: list[Numbered]) -> list[Callable[[], Numbered]]:
    return [lambda env=env: env for env in envs]  # type: ignore[misc]


class Draws:
    """The positions of each batch, int64 [BATCH], and how many rows the buffer had."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def of(self, filled: int) -> np.ndarray:
        self.sizes.append(filled)
        return np.random.default_rng(len(self.sizes)).integers(0, filled, BATCH)


def follow(model: Any, warm_up: np.ndarray, count: int) -> Draws:
    """Make the peer take the actions `warm_up` first, and sample the rows of `Draws`."""
    actions, draws, memory = iter(warm_up), Draws(), model.replay_buffer
    model.action_space.sample = lambda: next(actions)

    def sample(_: int, env: Any = None) -> Any:
        rows = memory.buffer_size if memory.full else memory.pos
        at = draws.of(rows * count)
        with pytest.MonkeyPatch.context() as patch:  # the buffer draws the environment of each row
            patch.setattr(np.random, "randint", lambda *_, **__: at % count)
            return memory._get_samples(at // count, env=env)

    memory.sample = sample
    return draws


@pytest.mark.parametrize("case", CASES)
def test_a_whole_training_is_that_of_the_peer(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, name, count, settings = CASES[case]
    envs, own_envs = numbered(name, count), numbered(name, count)
    peer = PEERS[algorithm]("MlpPolicy", DummyVecEnv(functions(envs)), seed=0, **copy.deepcopy(COMMON), **settings)
    peer.save(tmp_path / "peer.zip")
    ours = import_sb3(tmp_path / "peer.zip", algorithm, env=make_vec_env(functions(own_envs)))
    space = peer.action_space
    rng = np.random.default_rng(0)
    warm_up = np.stack(
        [rng.uniform(-1, 1, 1).astype(np.float32) * 2 if space.shape else rng.integers(2) for _ in range(99)]
    )
    drawn = follow(peer, warm_up, count)
    own, own_actions = Draws(), iter(warm_up)
    monkeypatch.setattr(
        rlsdk.exploration.behavior,
        "uniform_actions",
        lambda space, batch, generator: torch.as_tensor(np.stack([next(own_actions) for _ in range(batch)])),
    )
    memory: Any = ours.parts.buffer
    monkeypatch.setattr(memory, "draw", lambda size, generator: torch.as_tensor(own.of(len(memory))))

    for i, env in enumerate(envs + own_envs):
        env.begun = 1000 * (i % count)

    peer.learn(140 * count)
    ours.learn(140 * count)

    assert own.sizes == drawn.sizes, "updates at other times, or from other rows"
    assert len(own.sizes) > 20
    rows = len(memory) // count
    stored = memory.storage
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
