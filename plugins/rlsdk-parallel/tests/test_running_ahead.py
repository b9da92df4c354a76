"""Collectors with `max_lag` > 0: the result depends on the lag, and not on timing or on the executor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import gymnasium as gym
import pytest
import torch

import rlsdk
from rlsdk import executors
from rlsdk.agent.training_state import restore
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, SettingsError
from rlsdk.runs.request import RunRecord, RunRequest
from rlsdk.runs.runner import run
from rlsdk_parallel.executors import Background, StatefulHere
from rlsdk_parallel.workers import WorkerDied
from rlsdk_testing.subject import differing, equal_values, flat_state
from tests.agent.test_resume import assert_equal, assert_resumes, everything
from tests.collecting import CASES, SMALL, Kill, trained
from tests.runs.test_resumed_options import BASE, interrupted_at
from tests.stateful_environments import Secretive

ROLLOUTS: dict[str, Any] = dict(SMALL)


def envs(name: str, max_lag: int, executor: str = "in-process", **changes: Any) -> Any:
    return make_vec_env(CASES[name][1], 4, **{"collectors": 2, "executor": executor, "max_lag": max_lag, **changes})


def made(name: str, max_lag: int, executor: str = "in-process", **changes: Any) -> Any:
    algorithm, _, settings = CASES[name]
    return rlsdk.make(algorithm, env=envs(name, max_lag, executor), seed=3, **{**settings, **changes})


class Elsewhere:
    """An executor in this process that rlsdk treats as remote, so that its workers collect in the background."""

    def __init__(self, at: Mapping[int, int], wait: float) -> None:
        self.at, self.wait = dict(at), wait

    def stateful_workers(self, makers: Sequence[Callable[[], Any]]) -> StatefulHere:
        return Slow(makers, self.at, self.wait)

    def close(self) -> None: ...

    map = submit = print


class Slow(StatefulHere):
    """Workers that wait `wait` seconds before they collect; worker `at[n]` dies in round `n`."""

    def __init__(self, makers: Sequence[Callable[[], Any]], at: dict[int, int], wait: float) -> None:
        super().__init__(makers)
        self.at, self.wait, self.asked = at, wait, 0

    def ask(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        collects = any(request.name == "collect" for request in requests.values())
        self.asked += collects
        time.sleep(self.wait * collects)
        answers = super().ask(requests)
        if self.asked in self.at and (index := self.at.pop(self.asked)) in answers:
            answers[index] = WorkerDied("died (exit code -9)")
        return answers


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that registers the executor `elsewhere` and returns its name."""

    def make(at: Mapping[int, int] | None = None, wait: float = 0.0) -> str:
        monkeypatch.setitem(executors.EXECUTORS, "elsewhere", lambda _: Elsewhere(at or {}, wait))  # type: ignore[arg-type, return-value]
        return "elsewhere"

    return make


# --- the result ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dqn", "td3", "ppo-normalized", "acer"])
def test_the_weights_that_act_are_those_of_max_lag_rounds_before(name: str) -> None:
    for max_lag in (1, 2):
        acted, learned = list[torch.Tensor](), list[torch.Tensor]()
        agent = made(name, max_lag)
        asked = agent.env.collect

        def collect(shared: Any, own: Any, asked: Any = asked, acted: Any = acted) -> Any:
            acted.append(_vector(shared.policy))
            return asked(shared, own)

        def note(run: Any, learned: Any = learned) -> None:
            learned.append(_vector(run.agent.parts.behavior_policy.state_dict()))

        agent.env.collect = collect
        agent.learn(320, LambdaCallback(on_rollout_start=note))
        agent.env.close()
        assert len(acted) == agent.num_timesteps // (64 if name != "td3" else 16)
        for number, weights in enumerate(acted):
            assert torch.equal(weights, learned[max(0, number - max_lag)]), (max_lag, number)
        assert not torch.equal(learned[0], learned[-1])


def _vector(state: Any) -> torch.Tensor:
    """The weights as a vector, without the exploration rate, which changes during collection."""
    return torch.cat([value.flatten() for name, value in sorted(state.items()) if name != "epsilon"])


@pytest.mark.parametrize("name", ["sac", "dqn", "recurrent-ppo"])
def test_the_result_does_not_depend_on_time(name: str, elsewhere: Callable[..., str]) -> None:
    here, logged = trained(made(name, 1))
    there, logged_there = trained(made(name, 1, elsewhere(wait=0.01)))
    assert_equal(there, here)
    assert logged_there == logged
    assert logged[-1][1]["rollout/lag"] == 1.0
    synchronous, _ = trained(made(name, 0))
    assert not equal_values(here, synchronous)


def test_the_metric_tells_the_lag_of_every_round() -> None:
    _, logged = trained(made("ppo-normalized", 2), 320)
    assert [row["rollout/lag"] for _, row in logged][:5] == [0.0, 1.0, 2.0, 2.0, 2.0]
    _, logged = trained(made("ppo-normalized", 0), 64)
    assert all("rollout/lag" not in row for _, row in logged)


def test_a_round_is_begun_before_the_update_of_the_one_before_it() -> None:
    """Each round starts before the update of the round before it. No round starts that the training does not need."""
    agent, events = made("ppo-normalized", 1), list[str]()
    begin, update = agent.env.begin, agent.parts.algorithm.update

    def begun(work: Any) -> Any:
        events.append("begin")
        return begin(work)

    def updated(*arguments: Any, **named: Any) -> Any:
        events.append("update")
        return update(*arguments, **named)

    agent.env.begin, agent.parts.algorithm.update = begun, updated
    agent.learn(192)
    assert events == ["begin", "begin", "update", "begin", "update", "update"]


# --- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppo-normalized", "dqn"])
def test_a_training_resumes_to_the_bit(name: str, tmp_path: Path) -> None:
    assert_resumes(lambda: made(name, 2), lambda: envs(name, 2), tmp_path, 512, 320)


def test_a_training_that_a_callback_ends_goes_on_to_the_bit(elsewhere: Callable[..., str]) -> None:
    """After the stop, the round that had been started is collected again with the same weights."""
    whole, _ = trained(made("td3", 1), 256)
    agent = made("td3", 1, elsewhere())
    agent.learn(256, LambdaCallback(on_report=lambda run, report: report.env_steps < 128))
    assert agent.num_timesteps == 128
    agent.learn(128, reset_num_timesteps=False)
    assert_equal(everything(agent), whole)


def test_a_run_is_resumed_with_its_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**BASE.settings, "n_steps": 8, "batch_size": 16}
    settings = {name: value for name, value in settings.items() if name in ("n_steps", "batch_size", "seed")}
    where = {"n_envs": 2, "collectors": 2, "executor": "in-process", "max_lag": 1, "checkpoint_every": 32}
    asked = attrs.evolve(BASE, algorithm="ppo", settings=settings, steps=128, **where)
    run(attrs.evolve(asked, out=tmp_path / "whole"))
    assert RunRecord.read(tmp_path / "whole" / "run.json").max_lag == 1
    with monkeypatch.context() as context:
        interrupted_at(context, 32)
        assert run(attrs.evolve(asked, out=tmp_path / "part")).interrupted
    run(RunRequest(algorithm="ppo", out=tmp_path / "part", resume=True))
    found, wanted = (flat_state(rlsdk.load(tmp_path / folder / "final")) for folder in ("part", "whole"))
    assert not differing(found, wanted)


def test_weights_of_other_shapes_in_a_file_are_refused() -> None:
    agent = made("ppo-normalized", 1)
    agent.learn(128)
    state = agent.training_state()
    learning = state["training"]
    assert len(learning["ahead"]) == 1
    restore(made("ppo-normalized", 1)._assembled, state)
    learning["ahead"]["000"]["policy"] = {"log_std": torch.zeros(7)}
    with pytest.raises(ArtifactError, match="the file is damaged: its ahead has weights of other shapes"):
        restore(made("ppo-normalized", 1)._assembled, state)


# --- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppo-normalized", "dqn"])
def test_a_collector_that_dies_is_replaced_without_changing_the_result(
    name: str, elsewhere: Callable[..., str]
) -> None:
    whole, _ = trained(made(name, 1), 256)
    replaced, rows = trained(made(name, 1, elsewhere({2: 0, 4: 1})), 256)
    assert_equal(replaced, whole)
    assert rows[-1][1]["rollout/worker_restarts"] == 2.0


def test_environments_without_a_readable_state_begin_new_episodes_after_an_early_end() -> None:
    env = make_vec_env(Secretive, 2, collectors=2, executor="in-process", max_lag=1)
    agent = rlsdk.make("ppo", env=env, seed=0, **ROLLOUTS)
    agent.learn(512, LambdaCallback(on_report=lambda run, report: report.env_steps < 64))
    before, reset = agent.num_timesteps, env.reset
    seeds: list[int | None] = []
    env.reset = lambda seed=None: (seeds.append(seed), reset(seed))[1]  # type: ignore[method-assign]
    agent.learn(32, reset_num_timesteps=False)
    assert (agent.num_timesteps, len(seeds)) == (before + 32, 1)


class Broken(gym.Wrapper[Any, Any, Any, Any]):
    """Raises an error once, in the 100th step counted over all environments."""

    count = 0

    def step(self, action: Any) -> Any:
        Broken.count += 1
        if Broken.count == 100:
            raise ValueError("the cable is out")
        return super().step(action)


def test_errors_of_environments_end_the_training(elsewhere: Callable[..., str]) -> None:
    for executor in ("in-process", elsewhere()):
        Broken.count = 0
        env = make_vec_env("CartPole-v1", 4, collectors=2, executor=executor, max_lag=1, wrappers=[Broken])
        agent = rlsdk.make("ppo", env=env, seed=0, **ROLLOUTS)
        with pytest.raises(EnvironmentFault, match=r"raised ValueError .*: the cable is out"):
            agent.learn(192)
        assert agent.num_timesteps == 64
        agent.learn(64, reset_num_timesteps=False)  # new episodes begin
        assert agent.num_timesteps == 128
        env.close()


def test_requests_wait_for_the_round_that_is_collected(elsewhere: Callable[..., str]) -> None:
    """An attribute that a callback sets takes effect at the same step with every executor."""
    results = []
    for executor in ("in-process", elsewhere(wait=0.02)):
        agent = made("ppo-normalized", 1, executor)
        results.append(
            trained(agent, 256, LambdaCallback(on_report=lambda run, _: run.agent.env.set_attr("g", 5.0)))[0]
        )
    assert_equal(*results)


def test_closing_ends_what_is_collected(elsewhere: Callable[..., str]) -> None:
    agent = made("ppo-normalized", 1, elsewhere(wait=0.05))

    def close(run: Any, report: Any) -> None:
        run.agent.env.close()

    with pytest.raises(EnvironmentFault, match="is closed"):
        agent.learn(256, LambdaCallback(on_report=close))


def test_work_in_the_background_is_done_in_order() -> None:
    background, seen = Background(), list[int]()
    background.settle()
    futures = [background.submit(lambda i=i: (time.sleep(0.01), seen.append(i))) for i in range(3)]  # type: ignore[misc]
    failing = background.submit(lambda: 1 // 0)
    inside = background.submit(background.settle)  # must not wait for itself
    background.settle()
    assert seen == [0, 1, 2]
    assert all(future.done() for future in [*futures, inside])
    assert isinstance(failing.exception(), ZeroDivisionError)
    assert background.submit(threading.current_thread).result().daemon
    background.close()
    background.close()


# --- wrong settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_lag", [-1, 1.5, True, "1"])
def test_wrong_lags_are_refused(max_lag: Any) -> None:
    with pytest.raises(SettingsError, match=r"max_lag = .* must be a whole number, 0 or more"):
        make_vec_env("CartPole-v1", 2, collectors=2, max_lag=max_lag)


def test_a_lag_without_collectors_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"max_lag = 1 is for collectors.*give collectors = 1 or more"):
        make_vec_env("CartPole-v1", 2, max_lag=1)


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        ("trpo", {}, "trpo learns only from rollouts of its current policy.*; leave out max_lag = 1"),
        ("a2c", {}, "a2c learns only from rollouts of its current policy"),
        ("ars", {}, "ars cannot use collectors: it plays whole episodes"),
        ("dqn", {"train_freq": (1, "episode")}, "max_lag = 1 needs rounds of a length that is known before"),
    ],
)
def test_algorithms_that_cannot_learn_from_older_policies_are_refused(
    algorithm: str, changes: dict[str, Any], message: str
) -> None:
    env = make_vec_env("CartPole-v1", 2, collectors=1, executor="in-process", max_lag=1)
    with pytest.raises(SettingsError, match=message):
        rlsdk.make(algorithm, env=env, **changes)
    env.close()


def test_callbacks_that_follow_steps_are_refused() -> None:
    agent = made("ppo-normalized", 1)
    with pytest.raises(SettingsError, match=r"LambdaCallback follows every step.*max_lag = 1.*leave out max_lag"):
        agent.learn(64, LambdaCallback(on_step=lambda run, step: None))


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_collectors_in_processes_give_the_same_result_even_if_one_is_killed() -> None:
    here, _ = trained(made("td3", 1))
    there, rows = trained(made("td3", 1, "processes"), 192, Kill())
    assert_equal(there, here)
    assert rows[-1][1]["rollout/worker_restarts"] == 1.0
