"""Counts that Python calls take: every value is used, or refused in one line, before anything is made or trained."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rlsdk
from rlsdk.callbacks import CheckpointCallback, EvalCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError
from rlsdk.evaluation.evaluate import evaluate_policy, run_episodes
from rlsdk.executors import make_executor
from rlsdk_interchange import record_episodes
from rlsdk_sb3 import EveryNTimesteps
from tests.tables import in_one_test

ENV = "rlsdk/IdentityEnv-v0"
SMALL: dict[str, Any] = {"seed": 0, "n_steps": 8, "batch_size": 8}
REPLAY: dict[str, Any] = {"seed": 0, "buffer_size": 100, "learning_starts": 4}
WRONG = {"nan": math.nan, "inf": math.inf, "-1": -1, "text": "5", "a fraction": 2.5, "True": True}
HUGE = {"10**23": 10**23, "10**12": 10**12}
DIGITS = 10**5000
"""A number with more digits than Python writes as text."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_episodes("random", make_vec_env(ENV), 3, tmp_path_factory.mktemp("data") / "demo", seed=0)


def ppo(**settings: Any) -> Any:
    return rlsdk.make("ppo", env=ENV, **{**SMALL, **settings})


CALLS: dict[str, Callable[[Any, Path], object]] = {
    "n_envs": lambda value, _: make_vec_env(ENV, value),
    "n_envs, native": lambda value, _: make_vec_env("rlsdk/CartPole-v1", value, vectorization="native"),
    "workers": lambda value, _: make_vec_env(ENV, 2, vectorization="async", workers=value),
    "collectors": lambda value, _: make_vec_env(ENV, 2, collectors=value),
    "max_lag": lambda value, _: make_vec_env(ENV, 2, collectors=1, max_lag=value),
    "executor": lambda value, _: make_executor("in-process", value),
    "total_timesteps": lambda value, _: ppo().learn(value),
    "log_interval": lambda value, _: ppo().learn(8, log_interval=value),
    "schedule_until": lambda value, _: ppo().learn(8, schedule_until=value),
    "threads": lambda value, _: ppo().learn(8, threads=value),
    "evaluate_policy": lambda value, _: evaluate_policy(ppo(), gymnasium.make(ENV), value),
    "run_episodes": lambda value, _: run_episodes(ppo(), ENV, value),
    "record_episodes": lambda value, data: record_episodes("random", make_vec_env(ENV), value, data.with_name("out")),
    "EvalCallback n_eval_episodes": lambda value, _: EvalCallback(ENV, n_eval_episodes=value),
    "EvalCallback eval_freq": lambda value, _: EvalCallback(ENV, eval_freq=value),
    "CheckpointCallback": lambda value, data: CheckpointCallback(value, data.parent),
    "EveryNTimesteps": lambda value, _: EveryNTimesteps(value, lambda run: None),
    "n_steps": lambda value, _: ppo(n_steps=value).learn(8),
    "batch_size": lambda value, _: ppo(batch_size=value),
    "n_epochs": lambda value, _: ppo(n_epochs=value),
    "n_delta": lambda value, _: rlsdk.make("ars", env=ENV, n_delta=value),
    "buffer_size": lambda value, _: rlsdk.make("dqn", env=ENV, **{**REPLAY, "buffer_size": value}).learn(8),
    "replayed batch_size": lambda value, _: rlsdk.make("dqn", env=ENV, **REPLAY, batch_size=value).learn(8),
    "pretrain n_epochs": lambda value, data: ppo().pretrain(data, n_epochs=value),
    "pretrain batch_size": lambda value, data: ppo().pretrain(data, n_epochs=1, batch_size=value),
}
ENDLESS = ("total_timesteps", "evaluate_policy", "run_episodes", "record_episodes", "pretrain n_epochs")
"""Counts that may be huge: the work would then continue until it is stopped."""


@in_one_test
@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_count_is_refused(call: str, value: str, data: Path) -> None:
    with pytest.raises(RlsdkError) as caught:
        CALLS[call](WRONG[value], data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@in_one_test
@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("call", [name for name in CALLS if name not in ENDLESS])
@pytest.mark.full
def test_a_huge_count_is_used_or_refused(call: str, value: str, data: Path) -> None:
    with contextlib.suppress(RlsdkError):
        CALLS[call](HUGE[value], data)


@pytest.mark.parametrize("call", ["n_envs", "n_envs, native", "n_delta", "buffer_size", "replayed batch_size"])
def test_a_count_that_does_not_fit_is_refused(call: str, data: Path) -> None:
    for value in HUGE.values():
        with pytest.raises(
            RlsdkError, match=r"must be at most 16,777,216|GB, but only .* are free; lower|is outside \[1, 1e\+18\]"
        ):
            CALLS[call](value, data)
    if call == "n_envs":
        with pytest.raises(RlsdkError, match="n_envs = a very large number must be at most"):
            CALLS[call](DIGITS, data)


def test_an_offline_batch_that_does_not_fit_is_refused(data: Path) -> None:
    with pytest.raises(
        RlsdkError, match=r"a batch of 1000000000000 transitions needs .* GB, but only .*; lower batch_size"
    ):
        rlsdk.make("bc", env=ENV, dataset=data, batch_size=10**12).learn(1)


@in_one_test
@pytest.mark.parametrize("seed", [math.nan, math.inf, -1, "5", 2.5, True, 10**23])
def test_a_seed_of_environments_is_refused_at_once(seed: Any) -> None:
    with pytest.raises(RlsdkError, match=r"seed = .* must be a whole number from 0"):
        make_vec_env(ENV, seed=seed)


@in_one_test
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1, 0, "5", True, 10**12, 10**23])
def test_a_time_that_cannot_be_waited_for(seconds: Any) -> None:
    with pytest.raises(RlsdkError, match=r"timeout = .* must be a positive number of seconds, at most 2,000,000"):
        make_vec_env(ENV, 2, vectorization="async", timeout=seconds)
