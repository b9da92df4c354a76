"""Callbacks as documented for stable-baselines3: parameters, files, and the callback classes of stable-baselines3 itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.callbacks import CheckpointCallback, LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, MaskError, SettingsError
from rlsdk.evaluation.evaluate import evaluate_policy, run_episodes
from rlsdk_envs.toy import ChainEnv, InvalidActionEnvDiscrete
from rlsdk_sb3 import (
    BaseCallback,
    CallbackList,
    EvalCallback,
    EventCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    MaskableEvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)


def on_policy(n_envs: int = 1, **settings: Any) -> Any:
    env = make_vec_env(lambda: ChainEnv(5), n_envs)
    return rlsdk.make("trpo", env=env, n_steps=8, batch_size=8, seed=0, policy_kwargs={"net_arch": [4]}, **settings)


def off_policy(**settings: Any) -> Any:
    small = {"buffer_size": 300, "learning_starts": 50, "batch_size": 4, "policy_kwargs": {"net_arch": [4]}}
    return rlsdk.make("tqc", env=ChainEnv(5), seed=0, **{**small, **settings})


class Succeeding(ChainEnv):
    """A chain whose infos have `is_success`: whether the position is the last one."""

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "is_success": self.position == self.length}


@pytest.mark.parametrize("succeeds", [False, True])
def test_evaluations_are_written_to_a_file(succeeds: bool, tmp_path: Path) -> None:
    env = Succeeding(5) if succeeds else ChainEnv(5)
    model = on_policy()
    evaluator = EvalCallback(env, n_eval_episodes=3, eval_freq=8, log_path=tmp_path / "logs", verbose=0)
    model.learn(24, callback=evaluator)
    with np.load(tmp_path / "logs" / "evaluations.npz") as found:
        assert found["timesteps"].tolist() == [8, 16, 24]
        assert found["results"].tolist() == [[10.0] * 3] * 3
        assert found["ep_lengths"].tolist() == [[5] * 3] * 3
        assert ("successes" in found) == succeeds
        if succeeds:
            assert found["successes"].all()
    assert (evaluator.best_mean_reward, evaluator.last_mean_reward) == (10.0, 10.0)
    again = EvalCallback(env, n_eval_episodes=3, eval_freq=8, log_path=str(tmp_path / "logs"), verbose=0)
    model.learn(16, callback=again, reset_num_timesteps=False)
    with np.load(tmp_path / "logs" / "evaluations.npz") as found:
        assert found["timesteps"].tolist() == [8, 16, 24, 32, 40]
        assert found["results"].shape == (5, 3)
    (tmp_path / "logs" / "evaluations.npz").write_bytes(b"nothing")
    damaged = EvalCallback(env, n_eval_episodes=3, eval_freq=8, log_path=tmp_path / "logs", verbose=0)
    with pytest.warns(UserWarning, match="started again"):
        model.learn(8, callback=damaged, reset_num_timesteps=False)
    model.learn(8, callback=EvalCallback(env, n_eval_episodes=3, eval_freq=8, log_path=tmp_path / "logs", verbose=0))
    with np.load(tmp_path / "logs" / "evaluations.npz") as found:
        assert found["timesteps"].tolist() == [8]


def test_a_file_of_evaluations_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    evaluator = EvalCallback(ChainEnv(5), n_eval_episodes=3, eval_freq=8, log_path=tmp_path / "logs", verbose=0)
    with pytest.raises(ArtifactError, match=r"cannot write .*evaluations\.npz"):
        on_policy().learn(24, callback=evaluator)


def test_what_an_evaluation_prints_and_calls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    class Child(BaseCallback):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def _on_step(self) -> bool:
            calls.append((self.name, self.num_timesteps))
            assert self.parent.best_mean_reward == 10.0
            assert self.model is self.locals["self"]
            return True

    evaluator = EvalCallback(Succeeding(5), Child("best"), Child("after"), 2, 8, None, str(tmp_path))
    on_policy().learn(16, callback=evaluator)
    assert calls == [("best", 8), ("after", 8), ("after", 16)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "evaluation at step 8: mean return 10.00 +/- 0.00, mean length 5.0, success rate 100%, the best so far"
    )
    assert "best" not in lines[1]
    assert (tmp_path / "best.rlsdk").is_file()
    with pytest.raises(SettingsError, match='render_mode="human"'):
        EvalCallback(ChainEnv(5), render=True)


def test_documented_names_stop_as_documented() -> None:
    def evaluator(after: Any) -> EvalCallback:
        return EvalCallback(ChainEnv(5), n_eval_episodes=1, eval_freq=8, verbose=0, callback_after_eval=after)

    every = StopTrainingOnNoModelImprovement(max_no_improvement_evals=2, min_evals=1, verbose=1)
    assert on_policy().learn(160, callback=evaluator(every)).num_timesteps == 32
    rule = StopTrainingOnRewardThreshold(reward_threshold=9, verbose=1)
    assert on_policy().learn(160, callback=evaluator(rule)).num_timesteps == 8
    assert on_policy(2).learn(160, callback=StopTrainingOnMaxEpisodes(max_episodes=2, verbose=1)).num_timesteps == 20
    at: list[int] = []
    children = CallbackList([LambdaCallback(), LogEveryNTimesteps(n_steps=4)])

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            at.append(self.num_timesteps)
            return True

    on_policy().learn(16, callback=[children, EveryNTimesteps(n_steps=6, callback=Note())])
    assert at == [6, 12]
    with pytest.raises(SettingsError, match="EventCallback needs a BaseCallback"):
        EventCallback(LambdaCallback())


@pytest.mark.parametrize("n_envs", [1, 2])
def test_evaluations_know_how_far_the_training_is(n_envs: int) -> None:
    evaluator = EvalCallback(ChainEnv(5), n_eval_episodes=1, eval_freq=16, verbose=0)
    assert (evaluator.n_calls, evaluator.num_timesteps) == (0, 0)
    with pytest.raises(AttributeError, match="'model' before training"):
        _ = evaluator.model
    model = on_policy(n_envs).learn(32, callback=evaluator)
    assert (evaluator.n_calls, evaluator.num_timesteps) == (32 // n_envs, 32), "calls are vector steps"
    assert evaluator.model is model
    model.learn(32, callback=evaluator, reset_num_timesteps=False)
    assert (evaluator.n_calls, evaluator.num_timesteps) == (64 // n_envs, 64)
    evaluator = EvalCallback(ChainEnv(5), n_eval_episodes=1, eval_freq=16, verbose=0)
    stopped = off_policy().learn(64, callback=[evaluator, lambda scope, _: scope["self"].num_timesteps < 20])
    assert evaluator.n_calls == evaluator.num_timesteps == stopped.num_timesteps == 20


def test_arguments_of_callbacks_are_read_and_assigned(tmp_path: Path) -> None:
    evaluator = EvalCallback(Succeeding(5), verbose=0, log_path=tmp_path, best_model_save_path=str(tmp_path / "best"))
    assert (evaluator.n_eval_episodes, evaluator.eval_freq, evaluator.best_model_save_path) == (
        5,
        10_000,
        tmp_path / "best",
    )
    assert evaluator.log_path == tmp_path / "evaluations.npz"
    evaluator.n_eval_episodes, evaluator.eval_freq, evaluator.best_model_save_path = 2, 8, tmp_path / "other"
    saver = CheckpointCallback(1000, tmp_path / "files")
    assert (saver.save_freq, saver.save_path, saver.save_replay_buffer) == (1000, tmp_path / "files", True)
    saver.save_freq = 16
    calls: list[int] = []
    every = EveryNTimesteps(n_steps=1000, callback=lambda run: calls.append(run.num_timesteps))
    assert every.n_steps == 1000
    every.n_steps = 8
    threshold = StopTrainingOnRewardThreshold(1e9)
    assert threshold.reward_threshold == 1e9
    threshold.reward_threshold = 0.0
    model = on_policy().learn(24, callback=[evaluator, saver, every])
    assert evaluator.evaluations_successes == [[True, True]] * 3
    assert (tmp_path / "other" / "best.rlsdk").exists()
    assert not (tmp_path / "best").exists()
    assert [path.name for path in (tmp_path / "files").glob("*.rlsdk")] == ["step_000000016.rlsdk"]
    assert calls == [8, 16, 24]
    assert model.learn(24, callback=[evaluator, threshold]).num_timesteps == 8


def test_users_event_callbacks_call_their_children() -> None:
    at: list[int] = []

    class Child(BaseCallback):
        def _on_step(self) -> bool:
            at.append(self.parent.num_timesteps)
            assert "rewards" in self.locals
            return self.num_timesteps < 9

    class Thirds(EventCallback):
        def _on_step(self) -> bool:
            return self._on_event() if self.n_calls % 3 == 0 else True

    assert on_policy().learn(64, callback=Thirds(Child())).num_timesteps == 9
    assert at == [3, 6, 9]


def test_the_peers_own_callbacks_run(tmp_path: Path) -> None:
    theirs = pytest.importorskip("stable_baselines3.common.callbacks")
    model = off_policy()
    saved = theirs.CheckpointCallback(20, str(tmp_path), name_prefix="x", save_replay_buffer=True)
    logs = theirs.LogEveryNTimesteps(10)
    ends = theirs.StopTrainingOnMaxEpisodes(8)
    model.learn(100, callback=theirs.CallbackList([saved, logs, ends]))
    assert model.num_timesteps == 40
    assert len(list(tmp_path.iterdir())) == 4
    rule = theirs.StopTrainingOnRewardThreshold(9.0)
    evaluator = EvalCallback(ChainEnv(5), n_eval_episodes=1, eval_freq=10, verbose=0, callback_on_new_best=rule)
    assert off_policy().learn(100, callback=evaluator).num_timesteps == 10
    own = theirs.EvalCallback(
        ChainEnv(5), n_eval_episodes=1, eval_freq=10, verbose=0, warn=False, callback_on_new_best=rule
    )
    with pytest.warns(UserWarning, match="not of the same type"):
        assert off_policy().learn(100, callback=own).num_timesteps == 10


def test_checkpoints_with_a_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = CheckpointCallback(20, tmp_path, name_prefix="a", verbose=1, keep=None)
    other = CheckpointCallback(save_freq=40, save_path=str(tmp_path), name_prefix="b", keep=1)
    model = off_policy().learn(120, callback=[mine, other])
    names = sorted(path.name for path in tmp_path.glob("*.rlsdk"))
    assert names == sorted([*(f"a_{n}_steps.rlsdk" for n in range(20, 121, 20)), "b_120_steps.rlsdk"])
    assert capsys.readouterr().out.count("checkpoint at step") == 6
    for name in names:
        again = rlsdk.load(tmp_path / name, env=ChainEnv(5))
        assert len(again.replay_buffer) == again.num_timesteps
    assert model.num_timesteps == 120
    plain = CheckpointCallback(20, tmp_path / "plain", save_replay_buffer=False)
    off_policy().learn(60, callback=plain)
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == [
        "step_000000040.rlsdk",
        "step_000000060.rlsdk",
    ]
    for bad in ({"name_prefix": "../up"}, {"name_prefix": ""}, {"keep": 0}):
        with pytest.raises(SettingsError):
            CheckpointCallback(20, tmp_path, **bad)


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    class Mine(BaseCallback):
        pass

    with pytest.raises(SettingsError, match=r"is a class; pass an instance: Mine\(\.\.\.\)"):
        on_policy().learn(8, callback=Mine)
    with pytest.raises(SettingsError, match="must take two arguments"):
        on_policy().learn(8, callback=lambda scope: True)
    with pytest.raises(SettingsError, match="is not a callback"):
        on_policy().learn(8, callback="stop")


@pytest.mark.parametrize("n_envs", [1, 3])
def test_evaluation_calls_back_after_every_step(n_envs: int) -> None:
    seen: list[dict[str, Any]] = []
    env = make_vec_env(lambda: Succeeding(5), n_envs)
    returns, lengths = evaluate_policy(
        on_policy(), env, 4, callback=lambda scope, _: seen.append(dict(scope)), return_episode_rewards=True
    )
    assert (returns, lengths) == ([10.0] * 4, [5] * 4)
    assert len(seen) == 4 * 5
    assert all(scope["info"]["is_success"] == scope["done"] for scope in seen)
    assert sum(float(scope["reward"]) for scope in seen) == sum(returns)
    assert {scope["i"] for scope in seen} == set(range(n_envs))
    assert seen[4 * n_envs]["current_rewards"].tolist() == [10.0] * n_envs
    assert env.step(torch.zeros(n_envs, 1)).infos is None
    with pytest.raises(SettingsError, match="must take two arguments"):
        evaluate_policy(on_policy(), env, 1, callback=lambda episode: None)
    with pytest.raises(SettingsError, match="needs an agent"):
        evaluate_policy(on_policy().policy, env, 1)
    with pytest.raises(SettingsError, match="needs an agent, got"):
        evaluate_policy(on_policy().policy, env, 1, callback=lambda seen, known: None)


def test_evaluation_without_masks() -> None:
    def masked() -> Any:
        return InvalidActionEnvDiscrete(12, 8)

    model = rlsdk.make("maskable-ppo", env=masked(), n_steps=8, batch_size=8, seed=0)
    with_masks = run_episodes(model, masked(), 3, seed=0, deterministic=False)
    without = run_episodes(model, masked(), 3, seed=0, deterministic=False, use_masking=False)
    assert with_masks.returns != without.returns
    unmasked = gymnasium.wrappers.TransformAction(masked(), lambda action: action, None)
    unmasked.action_masks = None  # type: ignore[attr-defined]  # the wrapper hides them
    mean, _ = evaluate_policy(model, masked(), 2, use_masking=False)
    assert np.isfinite(mean)
    model.learn(
        8, callback=MaskableEvalCallback(masked(), n_eval_episodes=1, eval_freq=8, use_masking=False, verbose=0)
    )
    with pytest.raises(MaskError):
        run_episodes(model, unmasked, 1)


def test_rendering_needs_an_environment_that_shows_itself() -> None:
    class Shown(ChainEnv):
        render_mode = "human"

    evaluate_policy(on_policy(), Shown(5), 1, render=True)
    with pytest.raises(SettingsError, match='render_mode="human"'):
        evaluate_policy(on_policy(), ChainEnv(5), 1, render=True)
