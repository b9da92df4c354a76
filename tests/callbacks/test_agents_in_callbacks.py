"""Callbacks that use the agent during its training: each call works, or is refused before it changes anything."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import UsageError
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk_sb3 import BaseCallback

BETWEEN_ROUNDS = ("on_training_start", "on_rollout_start", "on_report", "on_update", "on_log")
# off-policy logs are written at the ends of episodes, and these episodes are long
EVENTS_OF_REPLAY = BETWEEN_ROUNDS[:-1]
IN_ROUNDS = ("on_step", "on_rollout_end")
SETTINGS: dict[str, dict[str, Any]] = {
    "trpo": {"n_steps": 16, "batch_size": 8},
    "qrdqn": {"buffer_size": 500, "learning_starts": 20, "batch_size": 8, "train_freq": 4},
}


class CountingEnv(gymnasium.Env[Any, Any]):
    """An environment whose observation is the number of the step, so that tests recognize transitions that never happened."""

    observation_space = spaces.Box(-1, 1e6, (1,))
    action_space = spaces.Discrete(2)
    resets = 0

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.resets, self.steps = self.resets + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.array([self.steps], np.float32), 1.0, False, self.steps >= 1000, {}


def made(algorithm: str = "qrdqn", env: Any = None) -> Any:
    settings = {"policy_kwargs": {"net_arch": [4]}, "seed": 0, **SETTINGS[algorithm]}
    return rlsdk.make(algorithm, env=CountingEnv() if env is None else env, **settings)


def calling(event: str, act: Any, after: int = 40) -> LambdaCallback:
    """A callback that calls `act(agent)` once, at `event`, after `after` steps of the agent (`on_training_start`: at once)."""
    called: list[int] = []

    def handle(run: Any, *_: Any) -> None:
        if not called and run.num_timesteps >= (0 if event == "on_training_start" else after):
            called.append(run.num_timesteps)
            act(run.agent)

    return LambdaCallback(**{event: handle})


def never_happened(agent: Any) -> list[tuple[float, float]]:
    """The stored (observation, next observation) pairs that are not steps of `CountingEnv`."""
    batch = agent.replay_buffer.sample(2000, torch.Generator().manual_seed(0))
    before, after = batch.observation.features.flatten(), batch.next_observation.features.flatten()
    return [(float(a), float(b)) for a, b in zip(before, after, strict=True) if b != a + 1]


@pytest.mark.parametrize(
    ("algorithm", "event"),
    [
        *(("trpo", event) for event in (*BETWEEN_ROUNDS, *IN_ROUNDS, "on_training_end")),
        *(("qrdqn", event) for event in (*EVENTS_OF_REPLAY, *IN_ROUNDS, "on_training_end")),
    ],
)
def test_episodes_that_a_callback_ends_begin_anew_at_the_next_round(algorithm: str, event: str) -> None:
    env = CountingEnv()
    agent = made(algorithm, env)
    agent.learn(100, callback=calling(event, lambda model: model.end_episodes()), log_interval=1)
    agent.learn(40, reset_num_timesteps=False)
    assert agent.num_timesteps >= 140
    assert env.resets == 2
    if algorithm == "qrdqn":
        assert not never_happened(agent)


@pytest.mark.parametrize("event", EVENTS_OF_REPLAY)
def test_a_callback_loads_a_replay_buffer_between_rounds(event: str, tmp_path: Path) -> None:
    made().learn(60).save_replay_buffer(tmp_path / "replay")
    agent = made()
    agent.learn(
        100, callback=calling(event, lambda model: model.load_replay_buffer(tmp_path / "replay")), log_interval=1
    )
    assert len(agent.replay_buffer) > 60
    assert not never_happened(agent)


@pytest.mark.parametrize("event", IN_ROUNDS)
def test_what_would_disturb_a_round_is_refused_in_it(event: str, tmp_path: Path) -> None:
    made().learn(60).save_replay_buffer(tmp_path / "replay")
    for act, message in (
        (lambda model: model.load_replay_buffer(tmp_path / "replay"), "on_rollout_start"),
        (lambda model: model.restart_episodes(), "call it between rounds"),
    ):
        agent = made()
        with pytest.raises(UsageError, match=message):
            agent.learn(100, callback=calling(event, act))
        agent.learn(40)
        assert not never_happened(agent)


@pytest.mark.parametrize("event", [*BETWEEN_ROUNDS, *IN_ROUNDS])
@pytest.mark.parametrize("num_envs", [1, 2])
def test_another_environment_is_refused_during_training(event: str, num_envs: int) -> None:
    agent = made("trpo")
    env = make_vec_env(CountingEnv, num_envs)
    for act in (lambda model: model.set_env(env), lambda model: setattr(model, "env", env)):
        with pytest.raises(UsageError, match=r"a training is running .* returns False"):
            agent.learn(100, callback=calling(event, act), log_interval=1)
    agent.set_env(env)
    assert agent.learn(32).num_timesteps == 32


@pytest.mark.parametrize("event", ["on_training_start", "on_rollout_start", "on_step", "on_rollout_end", "on_report"])
def test_learn_is_refused_while_the_agent_learns(event: str) -> None:
    agent = made()
    with pytest.raises(UsageError, match="a training of this agent is running"):
        agent.learn(100, callback=calling(event, lambda model: model.learn(50)))
    agent.learn(40)
    assert not never_happened(agent)


@pytest.mark.parametrize("event", ["on_step", "on_report"])
def test_a_copy_learns_while_the_agent_learns(event: str) -> None:
    def train_a_copy(model: Any) -> None:
        another = copy.deepcopy(model)
        another.learn(30, reset_num_timesteps=False)
        assert not never_happened(another)

    agent = made()
    agent.learn(100, callback=calling(event, train_a_copy))
    assert not never_happened(agent)


def test_the_environment_of_a_training_is_not_moved_by_callbacks() -> None:
    class Meddling(BaseCallback):
        def _on_step(self) -> bool:
            assert self.model.env is not None
            assert self.model.env.num_envs == 1
            assert list(self.model.env.get_attr("steps")) == [self.n_calls]
            assert copy.deepcopy(self.model.env).num_envs == 1
            for move in (
                lambda: self.model.env.reset(1),
                lambda: self.model.env.step(torch.zeros(1, dtype=torch.int64)),
            ):
                with pytest.raises(UsageError, match="a training is running in this environment"):
                    move()
            with pytest.raises(UsageError, match="needs another environment than the training"):
                evaluate_policy(self.model, self.model.env, 1)
            return True

    agent = made()
    env = agent.env
    agent.learn(60, callback=Meddling())
    assert agent.env is env
    assert not never_happened(agent)
