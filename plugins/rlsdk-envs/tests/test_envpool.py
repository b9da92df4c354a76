"""Environments of envpool; the tests are skipped where it is not installed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.environments import connect, make_vec_env
from rlsdk.environments.vector.native_vector import NativeVectorEnv
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk_ppo import PPO
from rlsdk_tqc import TQC

pytest.importorskip("envpool")
pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")


def pool(name: str, count: int, **kwargs: Any) -> NativeVectorEnv:
    from rlsdk_envs.envpool_vector import EnvpoolVector

    env = make_vec_env(name, count, vectorization="native", env_kwargs=kwargs, seed=2)
    assert isinstance(env, NativeVectorEnv)
    assert isinstance(env.env, EnvpoolVector)
    return env


def test_seeds_and_filler_rows() -> None:
    env = pool("Pendulum-v1", 3)
    one, two = env.reset(1).features, env.reset(1).features
    assert torch.equal(one, two)  # type: ignore[arg-type]
    agent = TQC("MlpPolicy", env, buffer_size=2000, learning_starts=50, batch_size=16, seed=1)
    agent.learn(900)
    batch = agent.parts.buffer.sample(500, torch.Generator().manual_seed(0))  # type: ignore[union-attr]
    assert bool((batch.reward < 0).all())  # filler rows, which have the reward 0, are not in the buffer


@pytest.mark.parametrize("limit", [5, 500])
def test_episodes_end_as_those_of_gymnasium(limit: int) -> None:
    """CartPole pushed to one side, compared with gymnasium's step by step: a time limit of 5 is reached, one of 500 is not."""
    from rlsdk_envs.envpool_vector import EnvpoolVector

    env = connect(EnvpoolVector("CartPole-v1", 2, max_episode_steps=limit))
    theirs: Any = [gymnasium.make("CartPole-v1", max_episode_steps=limit) for _ in range(2)]
    seen, over = env.reset(3).features, np.ones(2, bool)
    lengths = []
    for _ in range(40):
        step = env.step(torch.ones(2, dtype=torch.int64))
        before, now = np.asarray(seen), np.asarray(step.observation.features)
        final = iter(() if step.final_observation is None else np.asarray(step.final_observation.features))
        for i in range(2):
            if over[i]:
                theirs[i].reset()
            if not step.valid[i]:  # this row is the reset; the row before was the last of its episode
                assert not step.terminated[i]
                assert not step.truncated[i]
                assert step.observation.is_first[i]
                over[i] = True
                continue
            theirs[i].unwrapped.state = before[i].astype(np.float64)
            wanted, reward, terminated, truncated, _ = theirs[i].step(1)
            over[i] = False
            np.testing.assert_allclose(now[i], wanted, atol=1e-5)
            assert (bool(step.terminated[i]), bool(step.truncated[i])) == (terminated, truncated)
            assert step.reward[i] == reward
            if terminated or truncated:
                np.testing.assert_array_equal(next(final), now[i])
        lengths += [int(episode.length) for episode in step.episodes]
        seen = step.observation.features
    assert lengths
    assert all(length == 5 if limit == 5 else 5 < length < 20 for length in lengths)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("HalfCheetah-v5", {"normalize": True, "n_steps": 16, "batch_size": 64, "n_epochs": 2}),
        ("Pong-v5", {"policy": "CnnPolicy", "n_steps": 8, "batch_size": 16, "n_epochs": 1}),
    ],
)
def test_mujoco_and_atari(name: str, settings: dict[str, Any], tmp_path: Any) -> None:
    env = pool(name, 4)
    agent = rlsdk.make("ppo", env=env, seed=0, device="cpu", **settings)
    agent.learn(64)
    agent.save(tmp_path / "agent.rlsdk")
    again = rlsdk.load(tmp_path / "agent.rlsdk", env=pool(name, 4))
    again.learn(64, reset_num_timesteps=False)
    assert again.num_timesteps == 2 * agent.num_timesteps
    action, _ = again.predict(env.reset().features.numpy(), deterministic=True)  # type: ignore[union-attr]
    assert len(action) == 4


def test_what_envpool_does_not_take() -> None:
    with pytest.raises(SettingsError, match=r"env_kwargs has 'batch_size' .* all environments are stepped together"):
        pool("Pendulum-v1", 4, batch_size=2)
    with pytest.raises(EnvironmentFault, match="envpool cannot make 'Pendulum-v1': ") as caught:
        pool("Pendulum-v1", 4, no_such_argument=2)
    assert "\n" not in str(caught.value)
    env = pool("Pendulum-v1", 2)
    env.reset()
    env.close()
    with pytest.raises(EnvironmentFault, match="are closed; make new ones"):
        env.step(torch.zeros(2, 1))


def test_ppo_learns() -> None:
    model = PPO("MlpPolicy", pool("Acrobot-v1", 16), n_steps=64, batch_size=256, learning_rate=1e-3, seed=0)
    model.learn(60_000)
    assert np.mean([e["r"] for e in model.ep_info_buffer]) > -300
