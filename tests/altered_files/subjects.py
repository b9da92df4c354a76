"""The agent files that are altered: every algorithm, replay buffer, wrapper and kind of environment state."""

from __future__ import annotations

import functools
import importlib.util
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RecordEpisodeStatistics

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk_envs.toy import (
    BitFlippingEnv,
    IdentityEnv,
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
    SimpleMultiObsEnv,
)
from rlsdk_envs.wrappers import Monitor, TimeFeature
from tests.altered_files.environments import Assorted, Recording

NETS: dict[str, Any] = {"net_arch": [4]}
REPLAY: dict[str, Any] = {"buffer_size": 24, "learning_starts": 5, "batch_size": 4}
TQC = {**REPLAY, "policy_kwargs": {**NETS, "n_quantiles": 3, "n_critics": 2}}
QRDQN = {**REPLAY, "train_freq": 1, "policy_kwargs": {**NETS, "n_quantiles": 3}}
PPO = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "policy_kwargs": NETS}
TRPO = {"n_steps": 8, "batch_size": 8, "n_critic_updates": 1, "cg_max_steps": 2, "policy_kwargs": NETS}
MEMORY = {"lstm_hidden_size": 4, **NETS}


@dataclass(frozen=True)
class Subject:
    """An agent that is trained for `steps` and saved in the middle of episodes."""

    algorithm: str
    make_env: Callable[[], Any]
    settings: dict[str, Any]
    num_envs: int = 1
    steps: int = 30
    policy: str | None = None
    shared: bool = False
    """Whether all cases use the same environment, because it takes long to make."""

    def env(self) -> Any:
        """Make new environments."""
        return make_vec_env(self.make_env, self.num_envs)

    @property
    def replay(self) -> bool:
        return self.algorithm in ("tqc", "qrdqn")


def _gym(name: str, *wrappers: Callable[[Any], Any]) -> Callable[[], Any]:
    def make() -> Any:
        env = gym.make(name)
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return make


HINDSIGHT = {"replay_buffer_class": "hindsight", "replay_buffer_kwargs": {"goal_selection_strategy": "final"}}
OU = {"kind": "ornstein-uhlenbeck", "mean": [0.0], "sigma": [0.1]}
SUBJECTS: dict[str, Subject] = {
    "tqc": Subject("tqc", _gym("Pendulum-v1"), TQC),
    "tqc-sde": Subject(
        "tqc", _gym("Pendulum-v1", RecordEpisodeStatistics), {**TQC, "use_sde": True, "n_steps": 3, "normalize": True}
    ),
    "tqc-noise": Subject(
        "tqc",
        _gym("Pendulum-v1", Recording),
        {**TQC, "action_noise": OU, "replay_buffer_class": "prioritized", "optimize_memory_usage": True},
        num_envs=2,
    ),
    "tqc-hindsight": Subject(
        "tqc", lambda: BitFlippingEnv(4, continuous=True), {**TQC, **HINDSIGHT}, policy="MultiInputPolicy"
    ),
    "qrdqn": Subject("qrdqn", _gym("CartPole-v1", Monitor), {**QRDQN, "normalize": True}),
    "qrdqn-prioritized": Subject(
        "qrdqn", _gym("CartPole-v1", TimeFeature), {**QRDQN, "replay_buffer_class": "prioritized", "n_steps": 2}
    ),
    "qrdqn-hindsight": Subject(
        "qrdqn",
        lambda: BitFlippingEnv(4),
        {**QRDQN, **HINDSIGHT, "optimize_memory_usage": True},
        num_envs=2,
        policy="MultiInputPolicy",
    ),
    "qrdqn-frames": Subject(
        "qrdqn",
        lambda: IdentityEnv(3, episode_length=7),
        {**QRDQN, "frame_stack": 3, "optimize_memory_usage": True, "buffer_size": 30},
        num_envs=2,
    ),
    "qrdqn-masks": Subject("qrdqn", lambda: InvalidActionEnvDiscrete(5, 2), QRDQN),
    "trpo": Subject("trpo", _gym("CartPole-v1", RecordEpisodeStatistics), {**TRPO, "normalize": True}, num_envs=2),
    "trpo-sde": Subject("trpo", _gym("Pendulum-v1", TimeFeature, Recording), {**TRPO, "use_sde": True}),
    "trpo-assorted": Subject("trpo", Assorted, TRPO),
    "maskable-ppo": Subject("maskable-ppo", lambda: InvalidActionEnvMultiDiscrete(4, 2), PPO, num_envs=2),
    "maskable-ppo-bits": Subject("maskable-ppo", lambda: InvalidActionEnvMultiBinary(4, 2), {**PPO, "frame_stack": 2}),
    "maskable-ppo-dict": Subject(
        "maskable-ppo",
        lambda: SimpleMultiObsEnv(gym.spaces.Discrete(3)),
        {**PPO, "use_masking": False, "policy_kwargs": NETS},
        policy="MultiInputPolicy",
    ),
    "recurrent-ppo": Subject("recurrent-ppo", _gym("CartPole-v1"), {**PPO, "policy_kwargs": MEMORY}, num_envs=2),
    "recurrent-ppo-gru": Subject(
        "recurrent-ppo",
        _gym("Pendulum-v1", Monitor),
        {**PPO, "use_sde": True, "normalize": True, "policy_kwargs": MEMORY},
        policy="MlpGruPolicy",
    ),
    "ars": Subject("ars", _gym("CartPole-v1"), {"n_delta": 2, "normalize": {"norm_reward": False}}),
    "ars-mlp": Subject(
        "ars", lambda: IdentityEnv(2, episode_length=5), {"n_delta": 2, "policy_kwargs": NETS}, policy="MlpPolicy"
    ),
}
if importlib.util.find_spec("mujoco") is not None:
    SUBJECTS["trpo-mujoco"] = Subject("trpo", _gym("InvertedPendulum-v5"), TRPO, shared=True)


@functools.cache
def whole(name: str) -> bytes:
    """Return the unaltered agent file of a subject."""
    subject = SUBJECTS[name]
    model = rlsdk.make(subject.algorithm, env=subject.env(), policy=subject.policy, seed=0, **subject.settings)
    model.learn(subject.steps)
    target = io.BytesIO()
    model.save(target, include=["replay"] if subject.replay else [])
    return target.getvalue()
