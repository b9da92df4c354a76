"""Events of callbacks, counted in environment steps; rules that stop a training; evaluation that does not change it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.callbacks import (
    Callback,
    CheckpointCallback,
    EvalCallback,
    LambdaCallback,
    ParameterHistograms,
)
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import Evaluation
from rlsdk.records import Episode
from rlsdk.registry import unregister
from rlsdk.sinks import TensorBoardSink
from rlsdk.tree import flatten, leaves
from rlsdk_envs.toy import ChainEnv, IdentityEnv
from rlsdk_sb3 import (
    EveryNTimesteps,
    LogEveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from rlsdk_tqc import TQC
from tests.small_algorithms import register_reinforce


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_reinforce()
    yield
    unregister("reinforce")


def off_policy(n_envs: int = 1, **settings: Any) -> TQC:
    env = make_vec_env(lambda: ChainEnv(5), n_envs)
    small = {"buffer_size": 500, "learning_starts": 20, "batch_size": 8, "seed": 3}
    return TQC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **{**small, **settings})


def on_policy(n_envs: int = 1, **settings: Any) -> Any:
    env = make_vec_env(lambda: IdentityEnv(4, episode_length=10), n_envs)
    return rlsdk.make("reinforce", env=env, seed=1, n_steps=8, **settings)


class Log(Callback):
    """A callback that records every event with the number of environment steps at that moment."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):

            def note(run: Any, *details: Any) -> None:
                self.events.append((name, run.num_timesteps))

            return note
        return super().__getattribute__(name)

    @property
    def watches_steps(self) -> bool:
        return True

    def count(self) -> Counter[str]:
        return Counter(name for name, _ in self.events)


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("make", [off_policy, on_policy])
def test_every_event_is_told(make: Any, n_envs: int, tmp_path: Path) -> None:
    log = Log()
    evaluator = EvalCallback(IdentityEnv(4, episode_length=10) if make is on_policy else ChainEnv(5), eval_freq=64)
    agent = make(n_envs).learn(160, callback=[log, CheckpointCallback(80, tmp_path), evaluator])
    counts = log.count()
    assert counts["on_training_start"] == counts["on_training_end"] == 1
    assert [steps for name, steps in log.events if name == "on_step"] == list(range(n_envs, 161, n_envs))
    assert counts["on_episode"] == 160 // (10 if make is on_policy else 5)
    rounds = 160 // (8 * n_envs) if make is on_policy else 160 // n_envs
    assert counts["on_report"] == rounds
    assert counts["on_rollout_start"] in (rounds, rounds + 1)
    assert counts["on_update"] == (rounds if make is on_policy else (160 - 20) // n_envs)
    assert (counts["on_evaluation"], counts["on_checkpoint"]) == (2, 2)
    assert agent.num_timesteps == 160


def test_watching_steps_changes_nothing() -> None:
    weights = [
        torch.cat([v.flatten() for v in agent.get_parameters()["policy"].values()])
        for agent in (off_policy(2).learn(80), off_policy(2).learn(80, callback=Log()))
    ]
    assert torch.equal(*weights)


@pytest.mark.parametrize("n_envs", [1, 3, 8])
def test_every_n_steps_counts_environment_steps(n_envs: int) -> None:
    seen: list[int] = []
    off_policy(n_envs).learn(120, callback=EveryNTimesteps(24, lambda run: seen.append(run.num_timesteps)))
    assert seen == [-(-k // n_envs) * n_envs for k in (24, 48, 72, 96, 120)]

    class Child(Callback):
        def on_report(self, run: Any, report: Any) -> bool | None:
            return False

    assert off_policy(n_envs).learn(120, callback=EveryNTimesteps(48, Child())).num_timesteps == 48


@pytest.mark.parametrize(
    ("make", "callback", "every"),
    [
        (on_policy, lambda: EvalCallback(IdentityEnv(4, episode_length=10), eval_freq=7, verbose=0), 8),
        (on_policy, lambda: EveryNTimesteps(7, lambda run: None), 8),
        (on_policy, lambda: ParameterHistograms(7), 8),
        (off_policy, lambda: EveryNTimesteps(2, lambda run: None), 3),
        (off_policy, lambda: LogEveryNTimesteps(2), 3),
    ],
)
def test_an_interval_shorter_than_a_round_is_named_at_the_start(
    make: Any, callback: Any, every: int, tmp_path: Path
) -> None:
    agent = make() if make is on_policy else make(3)
    if isinstance(callback(), ParameterHistograms):
        agent.set_logger(TensorBoardSink.in_folder(tmp_path))
    with pytest.warns(UserWarning, match=rf"takes effect only every {every} steps, at the end of a round; raise it"):
        agent.learn(8, callback=callback())
    longer = EveryNTimesteps(every, lambda run: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.learn(8, callback=longer)


def test_any_event_can_stop() -> None:
    stop: dict[str, Any] = {"on_step": lambda run, step: run.num_timesteps < 40}
    assert off_policy().learn(100, callback=LambdaCallback(**stop)).num_timesteps == 40
    assert on_policy().learn(100, callback=LambdaCallback(**stop)).num_timesteps == 40  # a round has 8 steps
    episodes: list[Episode] = []
    callback = LambdaCallback(on_episode=lambda run, episode: episodes.append(episode) or len(episodes) < 3)
    assert off_policy().learn(100, callback=callback).num_timesteps == 15
    assert off_policy().learn(100, callback=LambdaCallback(on_training_start=lambda run: False)).num_timesteps == 0
    with pytest.raises(SettingsError, match="did you mean 'on_episode'"):
        LambdaCallback(on_episodes=print)


class Graded(EvalCallback):
    """An evaluation callback whose results come from a list."""

    def __init__(self, results: list[float], **settings: Any) -> None:
        super().__init__(ChainEnv(5), eval_freq=10, n_eval_episodes=1, **settings)
        self.results = iter(results)

    def evaluate(self, run: Any) -> bool:
        evaluation = Evaluation((Episode(0, next(self.results), 5),), True)
        children = self.after + (self.on_new_best if evaluation.mean > self.best else [])
        self.best = max(self.best, evaluation.mean)
        answers = [child.on_evaluation(run, evaluation) for child in children]
        run.notify("on_evaluation", evaluation)
        return False not in answers


def test_stopping_rules() -> None:
    results = [1.0, 3.0, 2.0, 2.5, 4.0, 1.0, 1.0, 1.0, 9.0, 9.0]
    rule = StopTrainingOnRewardThreshold(2.9)
    assert off_policy().learn(100, callback=[Graded(results), rule]).num_timesteps == 20
    assert off_policy().learn(100, callback=[Graded(results), StopTrainingOnNoModelImprovement(1)]).num_timesteps == 40
    assert off_policy().learn(100, callback=[Graded(results), StopTrainingOnNoModelImprovement(2)]).num_timesteps == 80
    late = StopTrainingOnNoModelImprovement(1, min_evals=5)
    assert off_policy().learn(100, callback=[Graded(results), late]).num_timesteps == 70
    child = Graded(results, callback_on_new_best=StopTrainingOnRewardThreshold(3.5))
    assert off_policy().learn(100, callback=child).num_timesteps == 50
    after = Graded(results, callback_after_eval=StopTrainingOnNoModelImprovement(1))
    assert off_policy().learn(100, callback=after).num_timesteps == 40
    # every episode of the chain returns 0 + 1 + 2 + 3 + 4
    training = StopTrainingOnRewardThreshold(10.0, on="training")
    assert off_policy(stats_window_size=4).learn(100, callback=training).num_timesteps == 20
    with pytest.raises(SettingsError, match="evaluation, training"):
        StopTrainingOnRewardThreshold(1.0, on="tests")
    with pytest.raises(SettingsError, match="at least 0"):
        StopTrainingOnNoModelImprovement(-1)
    with pytest.raises(SettingsError, match="positive number of environment steps"):
        EveryNTimesteps(0, print)


def test_children_of_an_evaluation_hear_of_real_evaluations() -> None:
    heard: list[float] = []
    listener = LambdaCallback(on_evaluation=lambda run, evaluation: heard.append(evaluation.mean))
    evaluator = EvalCallback(ChainEnv(5), eval_freq=50, n_eval_episodes=2, callback_on_new_best=listener)
    off_policy().learn(150, callback=evaluator)
    assert heard == [10.0]  # only a new best calls the listener: the later results equal the first
    assert [result.mean for _, result in evaluator.history] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("settings", [{}, {"normalize": True, "frame_stack": 2}])
def test_training_is_the_same_with_and_without_evaluation(settings: dict[str, Any]) -> None:
    states = []
    for evaluates in (False, True):
        agent = off_policy(2, **settings)
        callbacks = [EvalCallback(make_vec_env(lambda: ChainEnv(5), 3), eval_freq=20)] if evaluates else []
        agent.learn(120, callback=callbacks)
        states.append(leaves({n: v for n, v in flatten(agent.get_parameters()).items() if torch.is_tensor(v)}))
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_histograms_and_hyperparameters_reach_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    agent = off_policy(tensorboard_log=str(tmp_path))
    agent.learn(100, callback=ParameterHistograms(50), tb_log_name="run")
    events = EventAccumulator(str(tmp_path / "run_1"))
    events.Reload()
    names = events.Tags()
    assert any(name.startswith("parameters/") for name in names["histograms"])
    assert "rollout/ep_rew_mean" in names["scalars"]
    plugin = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"learning_rate" in plugin
    assert b"policy_kwargs.net_arch" in plugin
    with pytest.raises(SettingsError, match="no logger draws histograms"):
        off_policy().learn(10, callback=ParameterHistograms(5))


def test_intervals_of_the_command_are_whole_rounds_unless_chosen(tmp_path: Path, cli: Any) -> None:
    command = ("run", "ppo", "--env", "CartPole-v1", "--no-preset", "--set", "n_steps=64", "--steps", "100", "--out")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*takes effect only")
        assert cli(*command, str(tmp_path / "default"))[0] == 0
    with pytest.warns(UserWarning, match="--eval-every = 10 takes effect only every 64 steps"):
        assert cli(*command, str(tmp_path / "chosen"), "--eval-every", "10")[0] == 0
