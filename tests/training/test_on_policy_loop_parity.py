"""Whole trainings of on-policy agents and of their peers: the same steps, advantages and weights after several rollouts.

Both begin with the same weights, and get the same starts of episodes and the same noise of their actions. Each epoch is one
minibatch, so the order of its rows does not matter. Parity tests of the packages compare single updates; this one compares
rollouts, time limits, normalized rewards and the order of acting and learning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk_envs  # noqa: F401  # registers the environment with masks
from rlsdk.environments import make_vec_env
from rlsdk_interchange.sb3 import import_sb3
from rlsdk_kernels.numpy_distributions import GumbelSampler, NormalSampler
from tests.peer_updates import distance

pytest.importorskip("sb3_contrib")
import sb3_contrib
import stable_baselines3
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

STEPS, ROUNDS, LIMIT = 64, 4, 35
"""Steps of a rollout, rollouts, and steps of an episode before it is cut off."""
MASKED = "rlsdk/InvalidActionEnvDiscrete-v0"
CHOICES = {"Pendulum-v1": 1, "CartPole-v1": 2, MASKED: 20}
"""Noise has one number per choice, or per dimension of the action."""
PPO: dict[str, Any] = {"n_steps": STEPS, "n_epochs": 3}
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "PPO": ("ppo", "Pendulum-v1", 1, PPO),
    "PPO, three environments": ("ppo", "Pendulum-v1", 3, {**PPO, "clip_range_vf": 0.2, "ent_coef": 0.01}),
    "PPO, choices": ("ppo", "CartPole-v1", 2, PPO),
    "A2C": ("a2c", "CartPole-v1", 2, {"n_steps": STEPS}),
    "A2C, numbers": ("a2c", "Pendulum-v1", 1, {"n_steps": STEPS, "gae_lambda": 0.9}),
    "RecurrentPPO": ("recurrent-ppo", "CartPole-v1", 2, PPO),
    "RecurrentPPO, numbers": ("recurrent-ppo", "Pendulum-v1", 2, PPO),
    "MaskablePPO": ("maskable-ppo", MASKED, 2, PPO),
    "TRPO": ("trpo", "CartPole-v1", 2, {"n_steps": STEPS}),
    "TRPO, numbers": ("trpo", "Pendulum-v1", 1, {"n_steps": STEPS, "sub_sampling_factor": 1}),
}
PEERS = {
    "ppo": stable_baselines3.PPO,
    "a2c": stable_baselines3.A2C,
    "trpo": sb3_contrib.TRPO,
    "maskable-ppo": sb3_contrib.MaskablePPO,
    "recurrent-ppo": sb3_contrib.RecurrentPPO,
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


def noise(shape: tuple[int, ...]) -> Callable[[], np.ndarray]:
    """Returns the same sequence of Gumbel or normal numbers for every function that is made."""
    rng = np.random.default_rng(1)
    return lambda: (rng.normal(size=shape) if shape[-1] == 1 else rng.gumbel(size=shape)).astype(np.float32)


def follow(patch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Both libraries draw the noise of their actions from `noise`."""
    theirs, ours = noise(shape), noise(shape)

    def normal(self: Any) -> torch.Tensor:
        return self.distribution.mean + self.distribution.stddev * torch.from_numpy(theirs())

    def choice(self: Any) -> torch.Tensor:
        return (self.distribution.logits + torch.from_numpy(theirs())).argmax(-1)

    patch.setattr(DiagGaussianDistribution, "sample", normal)
    patch.setattr(CategoricalDistribution, "sample", choice)
    patch.setattr(MaskableCategoricalDistribution, "sample", choice)
    noise_of = lambda: torch.from_numpy(ours())  # noqa: E731
    patch.setattr(NormalSampler, "__call__", lambda self, mean, *_: mean + self.log_std.detach().exp() * noise_of())
    patch.setattr(GumbelSampler, "__call__", lambda self, logits, *_: (logits + noise_of()).argmax(-1))
    # compiled code computes Gumbel noise as -log of exponential numbers
    patch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.copy_((-noise_of()).exp()))
    # a minibatch of sequences begins anywhere in the rollout
    patch.setattr(np.random, "randint", lambda *_, **__: 0)
    patch.setattr(torch, "randint", lambda *_, **__: torch.tensor(0))
    patch.setattr(torch, "randn", lambda *_, **__: noise_of())
    patch.setattr(torch.Tensor, "normal_", lambda self, generator: self.copy_(noise_of()))


@pytest.mark.kernels("replaces the noise that kernels draw")
@pytest.mark.parametrize("case", CASES)
def test_a_whole_training_is_that_of_the_peer(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, name, count, given = CASES[case]
    settings = {**given, "batch_size": STEPS * count} if algorithm != "a2c" else given
    envs, own_envs = numbered(name, count), numbered(name, count)
    gamma = 0.99
    scaled = VecNormalize(DummyVecEnv(functions(envs)), norm_obs=False, gamma=gamma)
    policy = "MlpLstmPolicy" if algorithm == "recurrent-ppo" else "MlpPolicy"
    peer: Any = PEERS[algorithm](policy, scaled, gamma=gamma, seed=0, device="cpu", **settings)
    peer.save(tmp_path / "peer.zip")
    normalize = {"norm_obs": False, "gamma": gamma}
    ours = import_sb3(tmp_path / "peer.zip", algorithm, env=make_vec_env(functions(own_envs)), normalize=normalize)
    follow(monkeypatch, (count, CHOICES[name]))

    for i, env in enumerate(envs + own_envs):
        env.begun = 1000 * (i % count)

    rollouts: list[Any] = []
    update = ours.parts.algorithm.update
    monkeypatch.setattr(
        ours.parts.algorithm, "update", lambda batch, **progress: rollouts.append(batch) or update(batch, **progress)
    )
    peer.learn(ROUNDS * STEPS * count)
    ours.learn(ROUNDS * STEPS * count)

    assert len(rollouts) == ROUNDS
    assert any(bool(rollout.steps.truncated.any()) for rollout in rollouts)
    theirs = peer.rollout_buffer.observations  # [T, B, ..] before the peer's PPO joins the first two dimensions
    seen = theirs if theirs.ndim == 3 else theirs.reshape(count, STEPS, -1).swapaxes(0, 1)
    own = rollouts[-1].steps.observation.features
    assert np.allclose(seen.reshape(own.shape), own, atol=1e-3)
    assert distance(ours, peer, ours.spec.from_sb3) < 2e-4
