"""Capturing and restoring the state of an environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlsdk.environments import make_vec_env
from rlsdk.environments.states import OpaqueValue, capture, restore
from rlsdk.errors import ArtifactError
from rlsdk_envs import TimeFeature
from tests.stateful_environments import Own, Secretive
from tests.tables import in_one_test

TAKEN_UP = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "FrozenLake-v1",
    "Blackjack-v1",
    "HalfCheetah-v5",
    "Ant-v5",
    "Humanoid-v5",
    "Pusher-v5",
    "InvertedDoublePendulum-v5",
    "rlsdk/TMazeEnv-v0",
    "rlsdk/FakeImageEnv-v0",
    "rlsdk/SimpleMultiObsEnv-v0",
    "rlsdk/InvalidActionEnvMultiBinary-v0",
    "rlsdk/PendulumNoVel-v1",
)


def make_gym(name: str) -> Any:
    return make_vec_env(name, 1).environments[0]


def play(env: Any, actions: list[Any]) -> list[Any]:
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset()[0])  # the next episode continues the same random numbers
    return seen


@in_one_test
@pytest.mark.parametrize("name", TAKEN_UP)
def test_environments_go_on_where_they_stood(name: str) -> None:
    env, other = make_gym(name), make_gym(name)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(150)]
    env.reset(seed=3)
    play(env, actions[:40])
    state = capture(env)
    other.reset(seed=8)
    other.step(actions[0])
    restore(other, state)
    for mine, theirs in zip(play(env, actions), play(other, actions), strict=True):
        np.testing.assert_equal(mine, theirs)


@pytest.mark.parametrize("earlier", ["rlsdk.environments.wrappers.", "rlsdk.environments.wrappers.time_feature."])
def test_states_name_classes_that_moved(earlier: str) -> None:
    env, other = (TimeFeature(gym.make("Pendulum-v1")) for _ in range(2))
    env.reset(seed=3)
    env.step(np.ones(1, np.float32))
    other.reset(seed=4)
    state = capture(env)
    state["layout"] = state["layout"].replace("rlsdk_envs.wrappers.", earlier)
    assert earlier in state["layout"]
    restore(other, state)
    assert other.step(np.ones(1, np.float32))[0].tolist() == env.step(np.ones(1, np.float32))[0].tolist()


def test_environments_may_say_themselves_what_their_state_is() -> None:
    env, other = gym.wrappers.TimeLimit(Own(), 9), gym.wrappers.TimeLimit(Own(), 9)
    env.unwrapped.np_random, other.unwrapped.np_random  # noqa: B018  # makes the generators
    env._elapsed_steps = 0
    for _ in range(5):
        env.step(None)
    restore(other, capture(env))
    for _ in range(4):
        assert env.step(None)[1:4] == other.step(None)[1:4]
    assert env.step(None)[3]
    assert other.step(None)[3], "the time limit continues too"


def test_shared_objects_stay_shared_and_constants_stay() -> None:
    class Sharing(Secretive):
        def __init__(self) -> None:
            self.table = self.alias = np.arange(3.0)
            self.nested = [self.table, {"t": self.table}]
            self.rule = [len, "text"]
            self.deck: Any = None

    env, other = Sharing(), Sharing()
    env.table[0] = 7.0
    restore(other, capture(env))
    other.table[1] = 9.0
    assert other.alias is other.table
    assert other.nested[0] is other.nested[1]["t"] is other.table
    assert other.table.tolist() == [7.0, 9.0, 2.0]
    assert other.rule == [len, "text"]
    assert env.table.tolist() == [7.0, 1.0, 2.0], "a copy"


def test_any_number_of_arrays_comes_back_in_order() -> None:
    env, other = Secretive(), Secretive()
    env.position = [np.array([i]) for i in range(1200)]
    restore(other, capture(env))
    assert [int(array[0]) for array in other.position] == list(range(1200))


def test_what_cannot_be_told_is_named() -> None:
    env = Secretive()
    env.reset(seed=0)
    with pytest.raises(OpaqueValue, match=r"Secretive\.position is a .*Position"):
        capture(env)
    env.position = [1, {"a": np.array([object()])}]
    with pytest.raises(OpaqueValue, match=r"Secretive\.position\[1\]\['a'\] is an array of objects"):
        capture(env)


def test_states_of_other_environments_and_damaged_ones_are_refused() -> None:
    env = make_gym("CartPole-v1")
    env.reset(seed=0)
    state = capture(env)
    with pytest.raises(ArtifactError, match="another kind"):
        restore(make_gym("Pendulum-v1"), state)
    with pytest.raises(ArtifactError, match="another kind"):
        restore(gym.wrappers.RecordEpisodeStatistics(make_gym("CartPole-v1")), state)
    layout = state["layout"]
    for old, new in (
        ('"steps_beyond_terminated"', '"step"'),
        ('"dtype": "<f', '"dtype": "|O'),
        ('{"array": 0', '{"array": 99'),
        ('{"generator"', '{"pickle"'),
        ('"PCG64"', '"system"'),
        ('"shape": [4]', '"shape": [400000000000]'),
        ('{"array": 0', '{"same": 5, "array": 0'),
        ("[{", "[[{"),
        ("[{", "{{"),
    ):
        assert old in layout, old
        with pytest.raises(ArtifactError):
            restore(make_gym("CartPole-v1"), {**state, "layout": layout.replace(old, new, 1)})
    with pytest.raises(ArtifactError):
        restore(make_gym("CartPole-v1"), {**state, "layout": "[" * 100_000})
    with pytest.raises(ArtifactError):
        restore(make_gym("CartPole-v1"), {})
