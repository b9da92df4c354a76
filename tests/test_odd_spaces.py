"""Rare spaces: scalars, large unsigned integers, deep nesting, long keys. Agents that train can be saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlsdk
from rlsdk.errors import UnsupportedSpaceError
from rlsdk_envs.toy import AnySpaceEnv

SPACE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SCALAR = gym.spaces.Box(-1.0, 1.0, (), np.float32)
ROLLOUT: dict[str, Any] = {"seed": 0, "n_steps": 8}
REPLAY: dict[str, Any] = {"seed": 0, "learning_starts": 10, "buffer_size": 50, "batch_size": 4}


class Drawn(gym.Env[Any, Any]):
    """An environment whose observations are random samples of its space."""

    def __init__(self, observations: gym.Space[Any], actions: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.5, bool(self.np_random.random() < 0.1), False, {}


def comes_back(agent: Any, path: Path, env: Any) -> None:
    """Save the agent with its replay buffer, load it, compare the actions, and continue training."""
    observation = env.observation_space.sample()
    agent.save(path, include=["replay"] if agent.replay_buffer is not None else None)
    loaded = rlsdk.load(path, env=env)
    assert loaded.observation_space == agent.observation_space
    wanted, found = (m.predict(observation, deterministic=True)[0] for m in (agent, loaded))
    np.testing.assert_equal(found, wanted)
    loaded.learn(20)


@pytest.mark.parametrize("name", ["a2c", "trpo", "acktr"])
def test_a_scalar_box_as_action(name: str, tmp_path: Path) -> None:
    env = Drawn(SPACE, SCALAR)
    agent = rlsdk.make(name, env=env, **ROLLOUT).learn(20)
    assert np.shape(agent.predict(SPACE.sample())[0]) == ()
    comes_back(agent, tmp_path / "agent", env)


def test_a_scalar_box_among_others(tmp_path: Path) -> None:
    both = gym.spaces.Dict({"one": SCALAR, "choice": gym.spaces.Discrete(2)})
    env = Drawn(gym.spaces.Dict({"one": SCALAR, "two": SPACE}), both)
    comes_back(rlsdk.make("a2c", env=env, policy="MultiInputPolicy", **ROLLOUT).learn(20), tmp_path / "agent", env)


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("name", ["dqn", "a2c"])
def test_large_unsigned_integers_are_observed(name: str, kind: Any, tmp_path: Path) -> None:
    """Depth images have unsigned integers, and torch cannot index or add tensors of these dtypes."""
    env = Drawn(gym.spaces.Box(0, 60_000, (2, 3), kind), gym.spaces.Discrete(2))
    agent = rlsdk.make(name, env=env, **(REPLAY if name == "dqn" else ROLLOUT)).learn(40)
    comes_back(agent, tmp_path / "agent", env)


def nested(depth: int) -> gym.Space[Any]:
    return SPACE if depth == 0 else gym.spaces.Dict({"inner": nested(depth - 1)})


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (nested(9), "lies in more than 8 Dict or Tuple spaces; nest them less deep"),
        (gym.spaces.Dict({"k" * 2000: SPACE}), "of 2000 characters; at most 200 are accepted"),
    ],
)
def test_spaces_that_files_cannot_hold_are_refused_before_training(space: Any, words: str) -> None:
    for pair in ((space, SPACE), (SPACE, space)):
        policy = "MultiInputPolicy" if pair[0] is space else "MlpPolicy"
        with pytest.raises(UnsupportedSpaceError, match=words):
            rlsdk.make("a2c", env=Drawn(*pair), policy=policy)


def test_the_deepest_space_and_the_longest_key_come_back(tmp_path: Path) -> None:
    for name, space in (("deep", nested(8)), ("long", gym.spaces.Dict({"k" * 200: SPACE}))):
        env = AnySpaceEnv(space, SPACE)
        comes_back(rlsdk.make("a2c", env=env, policy="MultiInputPolicy", **ROLLOUT).learn(16), tmp_path / name, env)
