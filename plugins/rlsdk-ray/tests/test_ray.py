"""The executor `ray` on a Ray of two CPUs: the contract of executors, collectors, and the use of the cluster's resources."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from typer.testing import CliRunner

from rlsdk.callbacks import Callback
from rlsdk.cli.main import app
from rlsdk.environments import make_vec_env
from rlsdk.errors import PluginError, SettingsError, UsageError, WorkError
from rlsdk.executors import capacity, make_executor
from rlsdk_ppo import PPO
from rlsdk_ray import RayExecutor, Resources
from rlsdk_ray import nodes as nodes_module
from rlsdk_testing import ExecutorClause, executor_clauses, verify_executor
from rlsdk_testing.executor_work import Arrays
from rlsdk_testing.subject import differing, flat_state

MANY_PROCESSES = (
    "executor.deadly-item",
    "executor.nested",
    "executor.seeds",
    "executor.collectors",
    "executor.evaluation",
)
"""Clauses that need further Ray processes. Each of these takes seconds to import torch."""


@pytest.fixture(scope="module", autouse=True)
def two_cpus() -> Iterator[None]:
    """Start one Ray for all tests. Executors connect to it, and must not shut it down."""
    # with its usual niceness, Ray's processes would get too little time beside other tests
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    assert ray.is_initialized(), "an executor ended a Ray that it did not start"
    ray.shutdown()


@pytest.mark.parametrize(
    "clause",
    [
        pytest.param(clause, marks=pytest.mark.slow if clause.id in MANY_PROCESSES else ())
        for clause in executor_clauses()
    ],
    ids=str,
)
def test_contract(clause: ExecutorClause) -> None:
    verify_executor("ray", clause)


@pytest.mark.slow
@pytest.mark.parametrize("clause", executor_clauses(slow=True), ids=str)
def test_contract_with_much_memory(clause: ExecutorClause) -> None:
    verify_executor("ray", clause)


def test_the_capacity_is_that_of_the_cluster() -> None:
    assert capacity("ray") == 2


# --- collectors ----------------------------------------------------------------------------------------------------


class Kill(Callback):
    """Kills the process of a collector after the first round."""

    done = False

    def on_report(self, run: Any, report: Any) -> bool | None:
        if not self.done:
            self.done = True
            os.kill(run.agent.env.workers.pids[1], signal.SIGKILL)
        return None


def trained(executor: str, *callbacks: Callback) -> tuple[dict[str, Any], int]:
    """(state of the agent, number of collectors that were replaced)."""
    envs = make_vec_env("CartPole-v1", 4, collectors=2, executor=executor)
    agent = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, normalize=True, seed=3)
    agent.learn(192, [*callbacks])
    envs.close()
    return flat_state(agent), envs.restarts


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills a process")
def test_collectors_give_the_same_result_even_if_one_is_killed() -> None:
    there, restarts = trained("ray", Kill())
    here, _ = trained("in-process")
    assert not differing(there, here)
    assert restarts == 1


def test_more_collectors_than_cpus_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"4 collectors need 4 CPUs, the Ray has 2; choose 2 collectors or fewer"):
        make_vec_env("CartPole-v1", 4, collectors=4, executor="ray")


# --- work ----------------------------------------------------------------------------------------------------------


def writes_into(item: Arrays) -> Any:
    return item.shared, os.environ.get("OMP_NUM_THREADS")


def test_results_may_be_changed_and_shared_parts_arrive() -> None:
    shared = np.arange(50_000.0)
    executor = RayExecutor(2)
    (first, threads), (second, _) = executor.map(writes_into, [Arrays(i, np.ones(1), shared) for i in range(2)])
    executor.close()
    first += 1.0
    assert (first == second + 1.0).all()
    assert (second == shared).all()
    assert threads is not None, "processes of Ray compute with as many threads as they have CPUs"


def test_functions_of_a_program_are_sent_by_value() -> None:
    executor, factor = RayExecutor(1), 3
    assert executor.map(lambda item: factor * item, [1, 2]) == [3, 6]
    executor.close()
    with pytest.raises(UsageError, match="the executor is closed"):
        executor.map(abs, [1])


def test_a_lock_is_named_in_one_line() -> None:
    executor = RayExecutor(1)
    with pytest.raises(
        WorkError, match="the work or an item cannot be sent to another process: it raised TypeError"
    ) as error:
        executor.map(partial(max, threading.Lock()), [1])
    assert "\n" not in str(error.value)
    executor.close()


def test_items_larger_than_the_object_store_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk_ray.executor.smallest_store", lambda: 1e6)
    executor = RayExecutor(1)
    with pytest.warns(RuntimeWarning, match="an item of 2 MB is larger than the object store of Ray, 1 MB"):
        assert executor.map(np.sum, [np.ones(250_000)]) == [250_000.0]
    executor.close()


def test_other_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the processes of Ray have other versions than the program, the error names these versions."""
    versions = nodes_module._versions()
    assert {"rlsdk", "rlsdk-ray", "rlsdk-ppo"} <= dict(versions).keys()
    monkeypatch.setattr(nodes_module, "_versions", lambda: (*versions[1:], ("rlsdk-ars", "9.9.9")))
    with pytest.raises(PluginError, match=r"has other versions than the program: rlsdk-ars 9\.9\.9 \(0\.1\.0 there\)"):
        RayExecutor(1)


# --- settings ------------------------------------------------------------------------------------------------------


def test_resources_are_reserved() -> None:
    executor = RayExecutor(4, resources=Resources(num_cpus=0.5))
    assert executor.in_flight() == 8
    executor.close()
    executor = RayExecutor(1)
    assert executor.in_flight() == 1, "no more than asked for run at a time"
    executor.close()


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"num_cpus": 64}, r"a piece of work needs \{'CPU': 64\}, the whole Ray has \{'CPU': 2\.0\}"),
        ({"num_gpus": 1}, r"needs \{'CPU': 1\.0, 'GPU': 1\}, the whole Ray has \{'CPU': 2\.0, 'GPU': 0\.0\}"),
        ({"custom": {"simulator": 1}}, "'simulator': 0.0"),
        ({"num_cpus": -1}, "num_cpus = -1 must be a number of 0 or more"),
        ({"custom": {"memory": "2"}}, r"custom\['memory'\] = '2' must be a number of 0 or more"),
        ({"custom": ["memory"]}, r"custom = \['memory'\] must be a table"),
    ],
)
def test_what_does_not_fit_is_refused(resources: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RayExecutor(1, resources=Resources(**resources))


def test_wrong_numbers_and_addresses_are_refused() -> None:
    with pytest.raises(SettingsError, match="0 workers can do nothing"):
        make_executor("ray", 0)
    with pytest.raises(SettingsError, match="'2' workers can do nothing; give a whole number"):
        RayExecutor("2")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="connected to a Ray already; leave out address"):
        RayExecutor(1, address="127.0.0.1:6379")


def test_no_thread_and_no_warning_is_left() -> None:
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor = RayExecutor(2)
        assert executor.submit(abs, -2).result() == 2
        executor.close()
    assert threading.active_count() <= before


# --- the page ------------------------------------------------------------------------------------------------------

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths mean the same in Ray's processes, although these started in another folder."""
    monkeypatch.chdir(tmp_path)
    commands = [line for line in README.splitlines() if line.startswith("rlsdk run")]
    assert len(commands) == 2
    for line in commands:
        more = ["--eval-episodes", "1", "--eval-every", "0", "--no-preset", "--set", "n_steps=64", "--quiet"]
        done = CliRunner().invoke(app, [*shlex.split(line)[1:], *more, "--steps", "128"])
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
    files = [tmp_path / "runs" / name / "final.rlsdk" for name in ("seeds/seed-0", "seeds/seed-1", "collected")]
    assert all(file.exists() for file in files)


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = re.findall(r"```py\n(.*?)```", README, re.DOTALL)
    exec(compile(text, "README.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "[1, 4, 9]\n16\n"


@pytest.mark.slow
def test_trials_of_a_search_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    options = [
        "--steps",
        "64",
        "--trials",
        "2",
        "--eval-episodes",
        "1",
        "--executor",
        "ray",
        "--set",
        "n_steps=32",
        "--quiet",
    ]
    done = CliRunner().invoke(app, ["tune", "ppo", "--env", "CartPole-v1", "--jobs", "2", *options])
    assert done.exit_code == 0, f"{done.output}\n{done.exception}"
    assert list(tmp_path.rglob("best.toml"))


@pytest.mark.slow
def test_a_benchmark_has_the_scores_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(
        '[suite]\ndescription = "two cells"\nepisodes = 2\n'
        '[[cells]]\nalgorithm = "ars"\nenv = "CartPole-v1"\nsteps = 200\n'
        '[[cells]]\nalgorithm = "ppo"\nenv = "CartPole-v1"\nsteps = 64\n[cells.settings]\nn_steps = 32\nbatch_size = 32\n'
    )
    scores = []
    for executor in ("in-process", "ray"):
        command = [
            "bench",
            "small.toml",
            "--seeds",
            "2",
            "--jobs",
            "2",
            "--executor",
            executor,
            "--out",
            executor,
            "--json",
        ]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, f"{done.output}\n{done.exception}"
        scores.append([(each["algorithm"], each["seed"], each["mean"]) for each in json.loads(done.stdout)])
    assert scores[0] == scores[1]
    assert len(scores[0]) == 4


@pytest.mark.full
def test_algorithms_that_cannot_use_collectors_are_refused(tmp_path: Path) -> None:
    options = [
        "--n-envs",
        "2",
        "--collectors",
        "2",
        "--executor",
        "ray",
        "--steps",
        "100",
        "--out",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, ["run", "ars", "--env", "CartPole-v1", *options])
    assert done.exit_code == 1
    assert "ars cannot use collectors: it plays whole episodes" in str(done.exception)


def test_workers_find_the_modules_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the module of a user's environment, in the working directory or beside a file."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    here = nodes_module.Surroundings.here()
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    before = list(sys.path)
    for _ in range(2):
        here.enter()
        assert sys.path == [*before, str(tmp_path)]
