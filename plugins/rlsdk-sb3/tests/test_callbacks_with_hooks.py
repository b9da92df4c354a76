"""Subclasses of callbacks that override methods of `BaseCallback`, as scripts for stable-baselines3 do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.callbacks import Callback, CheckpointCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import UsageError
from rlsdk_envs.toy import ChainEnv
from rlsdk_sb3 import EvalCallback, StopTrainingOnRewardThreshold


def made(num_envs: int = 1) -> Any:
    env = make_vec_env(lambda: ChainEnv(5), num_envs)
    return rlsdk.make("trpo", env=env, n_steps=16, batch_size=8, policy_kwargs={"net_arch": [4]}, seed=0)


class TrialEvalCallback(EvalCallback):
    """The evaluation callback of the Optuna example of stable-baselines3; it can prune a trial."""

    def __init__(self, eval_env: Any, eval_freq: int = 10, prune_at: int | None = None) -> None:
        super().__init__(eval_env=eval_env, n_eval_episodes=2, eval_freq=eval_freq, deterministic=True, verbose=0)
        self.eval_idx, self.prune_at = 0, prune_at
        self.is_pruned = False
        self.reports: list[tuple[float, int]] = []

    def _on_step(self) -> bool:
        if self.eval_freq > 0 and self.n_calls % self.eval_freq == 0:
            super()._on_step()
            self.eval_idx += 1
            self.reports.append((self.last_mean_reward, self.num_timesteps))
            if self.eval_idx == self.prune_at:
                self.is_pruned = True
                return False
        return True


@pytest.mark.parametrize("num_envs", [1, 2])
def test_the_example_of_optuna_evaluates_and_prunes(num_envs: int) -> None:
    callback, agent = TrialEvalCallback(ChainEnv(5)), made(num_envs)
    agent.learn(32 * num_envs, callback=callback)
    assert [steps for _, steps in callback.reports] == [10 * num_envs, 20 * num_envs, 30 * num_envs]
    assert [mean for mean, _ in callback.reports] == [evaluation.mean for _, evaluation in callback.history]
    pruning = TrialEvalCallback(ChainEnv(5), prune_at=2)
    agent = made(num_envs).learn(64 * num_envs, callback=pruning)
    assert pruning.is_pruned
    assert agent.num_timesteps == 20 * num_envs


def test_an_evaluation_calls_every_method_with_its_values(tmp_path: Path) -> None:
    called: list[str] = []

    class Following(EvalCallback):
        def _init_callback(self) -> None:
            called.append("init")
            assert self.model.num_timesteps == 0

        def _on_training_start(self) -> None:
            called.append("training starts")

        def _on_rollout_start(self) -> None:
            called.append("rollout starts")

        def _on_step(self) -> bool:
            called.append("step")
            assert len(self.locals["infos"]) == self.training_env.num_envs == 1
            self.logger.record("my/steps", self.n_calls)
            return super()._on_step()

        def _on_rollout_end(self) -> None:
            called.append("rollout ends")

        def _on_training_end(self) -> None:
            called.append("training ends")

    callback = Following(ChainEnv(5), eval_freq=10, verbose=0, best_model_save_path=tmp_path)
    made().learn(16, callback=callback)
    order = ["init", "training starts", "rollout starts", *["step"] * 16, "rollout ends"]
    assert called[: len(order)] == order
    assert called[-1] == "training ends"
    assert [steps for steps, _ in callback.history] == [10]
    assert (tmp_path / "best.rlsdk").exists()


def test_only_the_end_of_rollouts_is_followed() -> None:
    class Counting(EvalCallback):
        ends = 0

        def _on_rollout_end(self) -> None:
            self.ends += 1

    callback = Counting(ChainEnv(5), eval_freq=16, verbose=0)
    made().learn(32, callback=callback)
    assert callback.ends == 2
    assert [steps for steps, _ in callback.history] == [16, 32]


@pytest.mark.parametrize("parent", [Callback, CheckpointCallback, StopTrainingOnRewardThreshold])
def test_a_method_that_would_never_be_called_is_refused(parent: type[Callback]) -> None:
    with pytest.raises(
        UsageError, match=r"Silent\._on_step would never be called.*on_step\(run, step\).*on_evaluation"
    ):
        type("Silent", (parent,), {"_on_step": lambda self: True})
    with pytest.raises(UsageError, match="_init_callback would never be called"):
        type("Silent", (parent,), {"_init_callback": lambda self: None})
