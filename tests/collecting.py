"""Algorithms whose trainings in collectors are compared, and what the tests of collectors share."""

from __future__ import annotations

import os
import signal
from typing import Any

from rlsdk.callbacks import Callback
from rlsdk_envs.toy import SimpleMultiObsEnv
from tests.agent.test_resume import Log, WriteAtEnd, everything

SMALL = {"n_steps": 16, "batch_size": 32}
REPLAY = {
    "train_freq": 4,
    "gradient_steps": 2,
    "learning_starts": 40,
    "batch_size": 16,
    "buffer_size": 400,
    "policy_kwargs": {"net_arch": [16]},
}
OU = {"kind": "ornstein-uhlenbeck", "mean": 0.0, "sigma": 0.3}
LSTM: dict[str, Any] = {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 8}}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", SMALL),
    "ppo-normalized": ("ppo", "Pendulum-v1", {**SMALL, "normalize": True}),
    "ppo-gsde": ("ppo", "Pendulum-v1", {**SMALL, "use_sde": True, "sde_sample_freq": 4}),
    "ppo-dict": ("ppo", SimpleMultiObsEnv, {**SMALL, "policy": "MultiInputPolicy"}),
    "a2c": ("a2c", "CartPole-v1", {"n_steps": 8, "normalize": {"sign_reward": True, "norm_reward": False}}),
    "trpo-frames": ("trpo", "Pendulum-v1", {**SMALL, "frame_stack": 3, "normalize": True}),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", SMALL),
    "recurrent-ppo": ("recurrent-ppo", "rlsdk/CartPoleNoVel-v1", {**SMALL, "normalize": True}),
    "acer": ("acer", "CartPole-v1", {**LSTM, "n_steps": 16, "buffer_size": 256, "replay_start": 64}),
    "acktr": ("acktr", "CartPole-v1", {"n_steps": 16, "policy_kwargs": {"net_arch": [16]}}),
    "sac": ("sac", "Pendulum-v1", {**REPLAY, "use_sde": True, "sde_sample_freq": 2, "normalize": True}),
    "td3": ("td3", "Pendulum-v1", {**REPLAY, "action_noise": OU, "frame_stack": 2}),
    "tqc": ("tqc", "Pendulum-v1", {**REPLAY, "train_freq": 1, "n_steps": 3}),
    "dqn": ("dqn", "CartPole-v1", {**REPLAY, "train_freq": 16, "learning_starts": 0, "exploration_fraction": 1.0}),
    "dqn-masks": ("dqn", "rlsdk/InvalidActionEnvDiscrete-v0", {**REPLAY, "replay_buffer_class": "prioritized"}),
    "qrdqn-episodes": ("qrdqn", "CartPole-v1", {**REPLAY, "train_freq": (1, "episode")}),
}


def trained(agent: Any, steps: int = 192, *callbacks: Callback) -> tuple[dict[str, Any], list[Any]]:
    """(the complete state of the agent after `steps`, the logged rows)."""
    log = Log()
    agent.set_logger(log)
    agent.learn(steps, [*callbacks, WriteAtEnd()], log_interval=1)
    agent.env.close()
    return everything(agent), log.rows


class Kill(Callback):
    """Kills the process of a collector after the first round."""

    pid = 0

    def on_report(self, run: Any, report: Any) -> bool | None:
        if not self.pid:
            self.pid = run.agent.env.workers.pids[1]
            os.kill(self.pid, signal.SIGKILL)
        return None
