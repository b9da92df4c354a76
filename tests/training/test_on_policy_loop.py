"""The on-policy loop with a minimal algorithm: REINFORCE on the identity task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.registry import unregister
from rlsdk_envs.toy import IdentityEnv
from rlsdk_testing import run_checks
from tests.small_algorithms import register_reinforce


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_reinforce()
    yield
    unregister("reinforce")


def test_it_learns_and_counts() -> None:
    env = make_vec_env(lambda: IdentityEnv(4, episode_length=20), 3)
    agent = rlsdk.make("reinforce", env=env, seed=0)
    reports: list[Any] = []
    agent.learn(3000, callback=LambdaCallback(on_report=lambda run, report: reports.append(report)))
    rollouts = agent.parts.algorithm.rollouts  # type: ignore[attr-defined]
    assert {tuple(rollout.steps.reward.shape) for rollout in rollouts} == {(32, 3)}
    assert [r.env_steps for r in reports[:3]] == [96, 192, 288]
    assert [r.updates for r in reports[:3]] == [1, 2, 3]
    assert agent.num_timesteps == 3072
    assert evaluate_policy(agent, IdentityEnv(4), 3)[0] == 100.0


def test_logs_count_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    agent = rlsdk.make("reinforce", env=IdentityEnv(4, episode_length=20), seed=0, verbose=1)
    agent.learn(32 * 6, log_interval=2)
    assert capsys.readouterr().out.count("total_timesteps") == 3


@pytest.mark.slow
def test_it_saves_loads_and_keeps_the_contracts() -> None:
    """Only three clauses may fail. For example, this algorithm does not use its setting `gamma`."""
    known = {"policy.action-in-space", "policy.samples-vary", "settings.have-effect"}
    broken = [o for o in run_checks("reinforce") if o.status == "failed" and o.id.split(".")[0] != "learns"]
    assert {o.id for o in broken} <= known
