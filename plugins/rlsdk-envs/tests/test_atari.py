"""Atari games: observations, the rewards that an agent learns from, and the rewards that are reported."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk_envs.atari import AtariWrapper, PressToStart
from rlsdk_envs.registration import GAMES
from rlsdk_envs.toy import ChainEnv

SIGNS = {"norm_obs": False, "norm_reward": False, "sign_reward": True}


def test_a_game_looks_as_it_should_and_starts_by_itself() -> None:
    pytest.importorskip("ale_py")
    env = make_vec_env("rlsdk/AtariBreakout-v4", 2)
    seen = env.reset(3)
    assert env.observation_space.shape == (84, 84, 1)
    assert seen.features.dtype == torch.uint8
    idle = torch.zeros(2, dtype=torch.int64)
    frames = [env.step(idle).observation.features.clone() for _ in range(4)]
    assert any(bool((before != after).any()) for before, after in pairwise(frames))  # the ball moves
    env.close()


class Lives(gymnasium.Env[Any, Any]):
    """A game with two lives: every third step loses a life, and the second loss ends the game. It records the actions."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(3)

    def reset(self, **kwargs: Any) -> Any:
        self.pressed: list[int] = []
        return np.zeros(1, np.float32), {"lives": 2}

    def step(self, action: Any) -> Any:
        self.pressed.append(int(action))
        lives = 2 - len(self.pressed) // 3
        return np.zeros(1, np.float32), 1.0, lives == 0, False, {"lives": lives}


def test_fire_is_pressed_at_the_start_and_after_each_life() -> None:
    inner = Lives()
    env = PressToStart(inner)
    env.reset()
    assert inner.pressed == [1]
    seen = [env.step(action)[1:3] for action in (0, 2, 0, 0)]
    assert inner.pressed == [1, 0, 2, 1, 0, 0]  # the second step lost a life, the last one the game
    assert seen == [(1.0, False), (2.0, False), (1.0, False), (1.0, True)]


def test_games_that_need_it_get_a_second_action_as_in_the_documented_wrapper() -> None:
    inner = Lives()
    env = PressToStart(inner, (1, 2))
    env.reset()
    assert inner.pressed == [1, 2]
    assert env.step(0)[1:3] == (3.0, False)
    assert inner.pressed == [1, 2, 0, 1, 2], "the step lost a life"
    assert env.step(0)[1:3] == (1.0, True)
    assert len(inner.pressed) == 6, "the game is over"

    class Short(Lives):
        """The second action ends the game."""

        games = 0

        def reset(self, **kwargs: Any) -> Any:
            self.games += 1
            return super().reset(**kwargs)

        def step(self, action: Any) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, action == 2, truncated, info

    short = Short()
    PressToStart(short, (1, 2)).reset()
    assert (short.games, short.pressed) == (2, [])


@pytest.mark.parametrize("game", ["BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"])
def test_games_start_as_those_of_the_documented_library(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ale_py = pytest.importorskip("ale_py")
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    gymnasium.register_envs(ale_py)
    pressed = list[list[int]]()
    for wrapper in (wrappers.AtariWrapper, AtariWrapper):
        env = wrapper(gymnasium.make(game), noop_max=0)
        own, step = list[int](), env.unwrapped.step
        monkeypatch.setattr(env.unwrapped, "step", lambda a, own=own, step=step: (own.append(int(a)), step(a))[1])
        env.reset(seed=0)
        pressed.append(own)
    assert pressed[0] == pressed[1] == [1] * 4 + [2] * 4


def test_the_games_of_ale_py_have_ids() -> None:
    roms = Path(pytest.importorskip("ale_py").__file__).parent / "roms"
    for_several = {"combat", "joust", "maze_craze", "warlords"}
    names = {path.stem for path in roms.glob("*.bin")} - for_several
    assert set(GAMES) == {"".join(part.title() for part in name.split("_")) for name in names}


def test_an_unknown_game_is_named() -> None:
    pytest.importorskip("ale_py")
    with pytest.raises(EnvironmentFault, match="AtariBrekout"):
        make_vec_env("rlsdk/AtariBrekout-v4")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(EnvironmentFault, match=r"rlsdk-envs\[atari\]"):
        make_vec_env("rlsdk/AtariPong-v4")


def test_signs_are_learned_from_and_true_returns_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_vec_env(lambda: ChainEnv(5, terminate_every=0, action_space=spaces.Discrete(2)), 1)
    agent = rlsdk.make("trpo", env=env, seed=0, normalize=SIGNS, n_steps=10)
    algorithm: Any = agent.parts.algorithm
    given, update = list[Any](), algorithm.update

    def noted(rollout: Any, *, progress: float) -> Any:
        given.append(rollout)
        return update(rollout, progress=progress)

    monkeypatch.setattr(algorithm, "update", noted)
    agent.learn(10)
    assert given[0].steps.reward[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0] * 2
    assert [episode.episode_return for episode in given[0].episodes] == [10.0, 10.0]


def test_steps_ahead_add_up_signs_not_rewards() -> None:
    settings = {"n_steps": 3, "gamma": 0.5, "buffer_size": 100, "learning_starts": 1000}
    env = make_vec_env(lambda: ChainEnv(50, action_space=spaces.Discrete(2)), 1)
    agent = rlsdk.make("qrdqn", env=env, seed=0, normalize=SIGNS, **settings).learn(30)
    buffer = agent.parts.buffer
    assert buffer is not None
    rewards = buffer.sample(64, generator=torch.Generator().manual_seed(0)).reward
    # discounted sums of 3 signs: 0.75 from step 0, 1.0 and 1.5 at the newest rows, 1.75 elsewhere
    assert set(rewards.tolist()) <= {0.75, 1.0, 1.5, 1.75}
    assert 1.75 in rewards.tolist()


@pytest.mark.parametrize(
    ("algorithm", "normalize", "words"),
    [
        ("qrdqn", {"sign_reward": True, "norm_obs": False}, "exclude each other"),
        ("ars", SIGNS, "whole returns"),
    ],
)
def test_where_signs_make_no_sense(algorithm: str, normalize: dict[str, bool], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        rlsdk.make(algorithm, env="CartPole-v1", normalize=normalize)


@pytest.mark.slow
def test_the_preset_runs_a_short_budget(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    settings = {"learning_starts": 500, "buffer_size": 5000}
    request = RunRequest(
        algorithm="qrdqn",
        env="rlsdk/AtariPong-v4",
        steps=1500,
        settings=settings,
        out=tmp_path / "run",
        eval_episodes=1,
    )
    run(request)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["final_evaluation"]["mean"] >= -21.0
