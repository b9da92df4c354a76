"""Collectors: a training is the same bit for bit wherever the groups of environments run, also if a collector dies."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import gymnasium as gym
import pytest
import torch

import rlsdk
from rlsdk import executors
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError
from rlsdk.executors import SerialExecutor
from rlsdk.exploration import NormalActionNoise
from rlsdk.runs.request import RunRecord, RunRequest
from rlsdk.runs.runner import run
from rlsdk_parallel import CollectorsVectorEnv
from rlsdk_parallel.executors import StatefulHere
from rlsdk_parallel.workers import WorkerDied
from rlsdk_testing.subject import differing, flat_state
from tests.agent.test_resume import assert_equal, assert_resumes, everything
from tests.collecting import CASES, SMALL, Kill, trained
from tests.runs.test_resumed_options import BASE, interrupted_at
from tests.stateful_environments import Secretive

ENDING = {"ppo", "ppo-dict", "a2c", "recurrent-ppo", "acer", "acktr", "dqn", "qrdqn-episodes"}
"""Cases whose episodes end within the steps of a test."""


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    """Register the executor `apart`, whose collectors run in this process: it tests all of collecting except processes."""
    executors.EXECUTORS["apart"] = lambda _: SerialExecutor()
    yield
    del executors.EXECUTORS["apart"]


def envs(name: str, executor: str, collectors: int = 2) -> Any:
    return make_vec_env(CASES[name][1], 4, collectors=collectors, executor=executor)


def made(name: str, executor: str, collectors: int = 2, **changes: Any) -> Any:
    algorithm, _, settings = CASES[name]
    return rlsdk.make(algorithm, env=envs(name, executor, collectors), seed=3, **{**settings, **changes})


@pytest.mark.parametrize("name", CASES)
def test_the_result_does_not_depend_on_where_collectors_are(name: str) -> None:
    here, logged = trained(made(name, "in-process"))
    apart, logged_apart = trained(made(name, "apart"))
    assert_equal(apart, here)
    assert logged_apart == logged
    assert any("rollout/ep_rew_mean" in row for _, row in logged) == (name in ENDING)


def test_collectors_have_whole_groups() -> None:
    """Four groups of environments give the same result in one collector, in two, in four, and with the executor in-process."""
    here = trained(made("ppo-normalized", "in-process", 4))[0]
    for count in (1, 2, 4):
        assert_equal(trained(made("ppo-normalized", "apart", count, env_groups=4))[0], here)


def test_an_agent_has_a_group_for_each_collector() -> None:
    agent = made("ppo", "apart", 4)
    assert (agent.config.env_groups, agent.env.collectors) == (4, 4)
    assert isinstance(agent.env, CollectorsVectorEnv)


class Dying(StatefulHere):
    """Workers of which `at[n]` dies at the n-th request to collect, and loses its state."""

    def __init__(self, makers: Sequence[Callable[[], Any]], at: Mapping[int, int]) -> None:
        super().__init__(makers)
        self.at, self.asked = dict(at), 0

    def ask(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        self.asked += any(request.name == "collect" for request in requests.values())
        answers = super().ask(requests)
        if self.asked in self.at and (index := self.at.pop(self.asked)) in answers:
            answers[index] = WorkerDied("died (exit code -9)")
        return answers


def dying(at: Mapping[int, int]) -> None:
    """Make the worker `at[n]` die in round `n`."""

    class Executor(SerialExecutor):
        def stateful_workers(self, makers: Sequence[Callable[[], Any]]) -> StatefulHere:
            return Dying(makers, at)

    executors.EXECUTORS["apart"] = lambda _: Executor()


@pytest.mark.parametrize("name", ["ppo-normalized", "recurrent-ppo", "trpo-frames", "maskable-ppo", "td3", "dqn"])
def test_a_collector_that_dies_is_replaced_without_changing_the_result(name: str) -> None:
    whole, logged = trained(made(name, "in-process"))
    dying({1: 0, 3: 1})
    agent = made(name, "apart")
    replaced, logged_too = trained(agent)
    assert_equal(replaced, whole)
    counts = [row.pop("rollout/worker_restarts", 0.0) for _, row in logged_too]
    assert logged_too == logged
    assert counts[-1] == 2.0


def test_a_collector_that_dies_between_two_trainings_changes_nothing_either() -> None:
    def twice(executor: str, die: bool) -> dict[str, Any]:
        agent = made("ppo", executor)
        agent.learn(96)
        if die:
            workers = agent.env.workers
            once = workers.ask

            def ask(requests: Mapping[int, Any]) -> dict[int, Any]:
                workers.ask = once
                return {**once(requests), 1: WorkerDied("died (exit code -9)")}

            workers.ask = ask
        agent.learn(128, reset_num_timesteps=False)
        agent.env.close()
        assert getattr(agent.env, "restarts", 0) == die
        return everything(agent)

    assert_equal(twice("apart", die=True), twice("in-process", die=False))


def test_the_step_after_a_lost_episode_is_marked() -> None:
    """Its actions were chosen for the old episode, so the environments of the new worker do not make it."""
    env: Any = make_vec_env(Secretive, 4, collectors=2, executor="apart", seed=1)
    env.reset()
    env.step(torch.zeros(4, 1))
    workers, once = env.workers, env.workers.ask

    def ask(requests: Mapping[int, Any]) -> dict[int, Any]:
        workers.ask = once
        return {**once(requests), 1: WorkerDied("died (exit code -9)")}

    workers.ask = ask
    env.get_attr("observation_space")
    step = env.step(torch.zeros(4, 1))
    assert step.valid.tolist() == step.observation.is_first.logical_not().tolist() == [True, True, False, False]
    assert step.reward.tolist()[2:] == [0.0, 0.0]
    assert env.step(torch.zeros(4, 1)).valid.all()
    env.close()


def test_environments_without_a_readable_state_begin_new_episodes() -> None:
    dying({2: 1})
    CASES["opaque"] = ("ppo", Secretive, SMALL)
    try:
        agent = made("opaque", "apart")
        _, rows = trained(agent)
    finally:
        del CASES["opaque"]
    assert agent.num_timesteps == 192
    assert rows[-1][1]["rollout/worker_restarts"] == 1.0


def test_a_collector_that_dies_again_ends_the_training() -> None:
    dying({2: 0})
    agent = made("ppo", "apart")
    workers = agent.env.workers
    once = workers.ask

    def ask(requests: Mapping[int, Any]) -> dict[int, Any]:
        if len(requests) == 1:
            return {index: WorkerDied("died (exit code 1)") for index in requests}
        return once(requests)

    workers.ask = ask
    with pytest.raises(EnvironmentFault, match="collector of numbers 0 to 1 died twice in the same piece of work"):
        agent.learn(192)


@pytest.mark.full
def test_a_training_in_collectors_resumes_to_the_bit_anywhere(tmp_path: Path) -> None:
    for name in ("recurrent-ppo", "trpo-frames", "dqn"):
        folder = tmp_path / name
        assert_resumes(lambda n=name: made(n, "apart"), lambda n=name: envs(n, "apart"), folder, 256, 128)
        assert_resumes(
            lambda n=name: made(n, "in-process"), lambda n=name: envs(n, "apart"), folder / "moved", 256, 128
        )


def test_settings_that_change_reach_the_collectors() -> None:
    """Collectors get new values of settings, also of those that only acting uses: here action noise, during training."""

    def change(run: Any, report: Any) -> None:
        if report.env_steps == 96:
            run.agent.action_noise = NormalActionNoise(0.0, 0.9)

    changed = LambdaCallback(on_report=change)
    here, _ = trained(made("td3", "in-process"), 192, changed)
    apart, _ = trained(made("td3", "apart"), 192, changed)
    assert_equal(apart, here)


def test_callbacks_that_follow_steps_get_them_and_change_nothing() -> None:
    here, _ = trained(made("ppo-normalized", "in-process"))
    seen: list[int] = []
    infos: list[Any] = []

    def on_step(run: Any, step: Any) -> None:
        seen.append(len(step.reward))
        infos.extend(step.infos)

    agent = made("ppo-normalized", "apart")
    with pytest.warns(RuntimeWarning, match="LambdaCallback follows every step"):
        apart, _ = trained(agent, 192, LambdaCallback(on_step=on_step, needs_infos=True))
    assert_equal(apart, here)
    assert seen == [4] * 48
    assert len(infos) == 192


def test_callbacks_of_rollouts_are_notified() -> None:
    events: list[str] = []
    ended = LambdaCallback(
        on_rollout_end=lambda run: events.append("rollout"), on_update=lambda run, report: events.append("update")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(made("ppo", "apart"), 128, ended)
    assert events == ["rollout", "update"] * 2


def test_attributes_and_methods_reach_the_environments() -> None:
    env: Any = make_vec_env("CartPole-v1", 4, collectors=2, executor="apart", seed=1)
    same: Any = make_vec_env("CartPole-v1", 4, vectorization="sync", seed=1)
    first, wanted = env.reset(), same.reset()
    assert first.features.tolist() == wanted.features.tolist()
    env.set_attr("length", 0.25, indices=[1, 3])
    assert env.get_attr("length") == [0.5, 0.25, 0.5, 0.25]
    assert len(env.env_method("close")) == 4
    with pytest.raises(UsageError, match="needs single environments"):
        env.map(lambda environments, items: [], [1])
    env.close()
    env.close()
    with pytest.raises(EnvironmentFault, match="is closed"):
        env.reset()


class Faulty(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that raises once: in the 20th step, counted over all environments."""

    count = 0

    def step(self, action: Any) -> Any:
        Faulty.count += 1
        if Faulty.count == 20:
            raise ValueError("the cable is out")
        return super().step(action)


def test_errors_name_the_environment() -> None:
    env = make_vec_env("CartPole-v1", 4, collectors=2, executor="apart", wrappers=[Faulty])
    agent = rlsdk.make("ppo", env=env, seed=0, **SMALL)
    with pytest.raises(EnvironmentFault, match=r"'CartPole-v1' \(number 1\) raised ValueError .*: the cable is out"):
        agent.learn(192)
    agent.learn(64, reset_num_timesteps=False)  # begins new episodes


def test_a_run_in_collectors_is_resumed_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run resumes with the same collectors, with another executor, and with one collector: the agent file holds
    the groups."""
    monkeypatch.setitem(BASE.settings, "n_steps", 8)
    asked = attrs.evolve(BASE, n_envs=2, collectors=2, executor="apart", checkpoint_every=16)
    run(attrs.evolve(asked, out=tmp_path / "whole"))
    record = RunRecord.read(tmp_path / "whole" / "run.json")
    assert (record.collectors, record.executor) == (2, "apart")
    assert "env_groups = 2" in (tmp_path / "whole" / "config.toml").read_text()
    for name, changes in (("same", {}), ("elsewhere", {"executor": "in-process"}), ("one", {"collectors": 1})):
        with monkeypatch.context() as context:
            interrupted_at(context, 16)
            assert run(attrs.evolve(asked, out=tmp_path / name)).interrupted
        run(RunRequest(algorithm="trpo", out=tmp_path / name, resume=True, **changes))
        found, wanted = (flat_state(rlsdk.load(tmp_path / folder / "final")) for folder in (name, "whole"))
        assert not differing(found, wanted), name


@pytest.mark.parametrize("option", ["executor", "vectorization"])
def test_a_stored_run_names_no_module_to_import(option: str, tmp_path: Path) -> None:
    run(attrs.evolve(BASE, out=tmp_path))
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, option: "antigravity:fly"}))
    with pytest.raises(
        SettingsError, match="names the executor 'antigravity:fly', and loading it would import a module"
    ):
        run(RunRequest(algorithm="trpo", out=tmp_path, resume=True))
    assert "antigravity" not in sys.modules


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (8, "collectors = 8 for 4 environments: each collector needs one or more"),
        (3, "collectors = 3 does not divide the 4 environments; choose a divisor"),
        (0, "collectors = 0 must be a positive whole number"),
        (True, "collectors = True must be a positive whole number"),
    ],
)
def test_wrong_numbers_of_collectors_are_refused(count: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_vec_env("CartPole-v1", 4, collectors=count, executor="in-process")


def test_executors_that_remember_nothing_are_refused() -> None:
    class Forgets:
        map = submit = close = print

    executors.EXECUTORS["forgets"] = lambda _: Forgets()  # type: ignore[assignment, return-value]
    try:
        with pytest.raises(SettingsError, match="Forgets has no workers that hold environments"):
            make_vec_env("CartPole-v1", 4, collectors=2, executor="forgets")
    finally:
        del executors.EXECUTORS["forgets"]
    with pytest.raises(SettingsError, match="unknown executor 'proceses'; did you mean 'processes'"):
        make_vec_env("CartPole-v1", 4, collectors=2, executor="proceses")
    for name, value in (("vectorization", "sync"), ("workers", 2), ("restart", True), ("start_method", "fork")):
        with pytest.raises(SettingsError, match=f"leave out {name} = {value!r}"):
            make_vec_env("CartPole-v1", 4, collectors=2, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "env", "reason"),
    [("ars", "CartPole-v1", "plays whole episodes")],
)
def test_algorithms_that_cannot_use_collectors_are_refused(algorithm: str, env: str, reason: str) -> None:
    with pytest.raises(
        SettingsError, match=f"{algorithm} cannot use collectors: it {reason}.*; leave out collectors = 2"
    ):
        rlsdk.make(algorithm, env=make_vec_env(env, 2, collectors=2, executor="in-process"))


def test_groups_that_collectors_cannot_share_are_refused() -> None:
    with pytest.raises(SettingsError, match="env_groups = 2 cannot be shared by 4 collectors; choose env_groups = 4"):
        made("ppo", "in-process", 4, env_groups=2)
    agent = rlsdk.make("ppo", env=make_vec_env("CartPole-v1", 4, vectorization="sync"), **SMALL)
    with pytest.raises(SettingsError, match="env_groups = 1 cannot be shared by 2 collectors"):
        agent.set_env(envs("ppo", "in-process"))


def test_more_collectors_than_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlsdk_parallel.environments import require_collectors

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.warns(RuntimeWarning, match="4 collectors on a machine with 2 cores"):
        require_collectors(4, 8, "processes")


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills a process")
@pytest.mark.full
def test_collectors_in_processes_give_the_same_result_even_if_one_is_killed() -> None:
    here, logged = trained(made("recurrent-ppo", "in-process"))
    there, logged_there = trained(made("recurrent-ppo", "processes"), 192, Kill())
    assert_equal(there, here)
    assert [row.pop("rollout/worker_restarts", 0.0) for _, row in logged_there][-1] == 1.0
    assert logged_there == logged
