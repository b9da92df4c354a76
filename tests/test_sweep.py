"""Sweeps, which are runs with several seeds in parallel, and executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from rlsdk.callbacks import StopOnInterrupt
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, UsageError, WorkError
from rlsdk.executors import SerialExecutor, make_executor
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk.runs.sweep import Sweep, _run_named, jobs_for, open_workers, run_all, seeds_from, stored, sweep
from rlsdk_ars import ARS
from rlsdk_interchange import record_episodes
from rlsdk_testing.subject import differing, flat_state
from rlsdk_tqc import TQC

SMALL = RunRequest(algorithm="ars", env="CartPole-v1", steps=1500, eval_episodes=1, checkpoint_every=500)


def plan(folder: Path, **changes: Any) -> Sweep:
    return Sweep(request=attrs.evolve(SMALL, out=folder), **{"seeds": (3, 4), "jobs": 2, **changes})


def double(item: int) -> int:
    return 2 * item


def count_then_die(item: Path) -> int:
    """End the process on the first call, and on every call for the name `always`. Otherwise return the number of calls."""
    seen = item.read_text() if item.exists() else ""
    item.write_text(seen + "x")
    if not seen or item.name == "always":
        os._exit(9)
    return len(seen) + 1


def refuse(item: int) -> int:
    raise SettingsError("no") if item else ValueError("bad")


@pytest.mark.parametrize("name", ["in-process", "processes"])
def test_executors_answer_in_order(name: str) -> None:
    executor = make_executor(name, 2)
    try:
        assert executor.map(double, [3, 1, 2]) == [6, 2, 4]
        assert executor.map(double, []) == []
        with pytest.raises(SettingsError, match="no"):
            executor.map(refuse, [1])
    finally:
        executor.close()


def test_what_ends_its_process_is_tried_once_more(tmp_path: Path) -> None:
    executor = make_executor("processes", 2)
    try:
        assert executor.map(count_then_die, [tmp_path / "a", tmp_path / "b"]) == [2, 2]
        with pytest.raises(WorkError, match=r"twice.*exit code 9"):
            executor.map(count_then_die, [tmp_path / "always"])
        with pytest.raises(ValueError, match="bad") as caught:
            executor.map(refuse, [0])
        assert "in refuse" in caught.value.__notes__[0]
        assert executor.map(double, [1]) == [2]
    finally:
        executor.close()


def test_unknown_executors_are_refused() -> None:
    with pytest.raises(SettingsError, match="did you mean 'processes'"):
        make_executor("process", 1)
    with pytest.raises(SettingsError, match="1 or more"):
        make_executor("processes", 0)
    with pytest.raises(SettingsError, match="did you mean 'processes'"):
        make_vec_env("CartPole-v1", vectorization="proceses")


def test_candidates_are_the_same_wherever_they_are_played() -> None:
    found = []
    for kind in ("sync", "in-process", "processes"):
        env = make_vec_env("CartPole-v1", vectorization=kind, workers=2)
        settings: dict[str, Any] = {"n_delta": 3, "seed": 1, "normalize": {"norm_reward": False}}
        found.append(flat_state(ARS("LinearPolicy", env, **settings).learn(600)))
        env.close()
    assert not differing(found[0], found[1])
    assert not differing(found[0], found[2])


def test_an_executor_steps_nothing() -> None:
    env = make_vec_env("CartPole-v1", vectorization="in-process")
    env.reset(0)
    with pytest.raises(UsageError, match="whole episodes"):
        env.step(torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("count", [1, 2])
def test_agents_that_step_refuse_an_executor(count: int) -> None:
    env = make_vec_env("Pendulum-v1", count, vectorization="in-process")
    with pytest.raises(UsageError, match="whole episodes"):
        TQC("MlpPolicy", env, seed=0).learn(10)


def test_a_fault_in_an_executor_names_the_environment() -> None:
    def broken() -> Any:
        import gymnasium

        env = gymnasium.make("CartPole-v1")
        env.unwrapped.step = lambda action: 1 / 0  # type: ignore[method-assign]
        return env

    env = make_vec_env(broken, vectorization="processes", workers=1)
    with pytest.raises(EnvironmentFault, match=r"CartPole-v1.*ZeroDivisionError"):
        ARS("LinearPolicy", env, n_delta=1, seed=0).learn(10)


def test_seeds_may_run_from_another_thread(tmp_path: Path) -> None:
    """A sweep works outside the main thread too, where Python cannot set signal handlers."""
    with ThreadPoolExecutor(1) as pool:
        results = pool.submit(sweep, plan(tmp_path / "threaded")).result()
    assert [result.error for result in results] == [None, None]


def test_a_preset_that_seeds_cannot_use_is_refused_before_any_begins(tmp_path: Path) -> None:
    request = attrs.evolve(SMALL, preset="nowhere", out=tmp_path / "none")
    with pytest.raises(SettingsError, match="nowhere"):
        sweep(attrs.evolve(plan(tmp_path / "none"), request=request))
    assert not (tmp_path / "none").exists()


def test_seeds_run_side_by_side_as_they_run_alone(tmp_path: Path) -> None:
    results = sweep(plan(tmp_path / "both"))
    assert [result.seed for result in results] == [3, 4]
    alone = run(RunRequest(**{**attrs.asdict(SMALL), "settings": {"seed": 4}, "out": tmp_path / "alone"}))
    assert results[1].mean == alone.evaluation.mean
    assert (tmp_path / "both/seed-4/metrics.csv").exists()
    summary = json.loads((tmp_path / "both/summary.json").read_text())
    assert summary["mean"] == pytest.approx(sum(r.mean or 0.0 for r in results) / 2)
    with pytest.raises(SettingsError, match="already holds runs"):
        sweep(plan(tmp_path / "both"))


def test_a_seed_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "x/seed-3").mkdir(parents=True)
    (tmp_path / "x/seed-3/metrics.csv").write_text("")  # a file of another run
    first, second = sweep(plan(tmp_path / "x", executor="in-process"))
    assert "holds metrics.csv but no run.json" in str(first.error)
    assert (first.mean, second.error) == (None, None)


def test_what_every_seed_would_fail_with_is_raised_once_and_claims_no_folder(tmp_path: Path) -> None:
    wrong = RunRequest(algorithm="ars", env="NoSuchThing-v0", steps=10, out=tmp_path / "x")
    with pytest.raises(EnvironmentFault, match="NoSuchThing"):
        sweep(Sweep(request=wrong, seeds=(0, 1), jobs=1, executor="in-process"))
    assert not (tmp_path / "x").exists()


def test_steps_that_the_last_round_went_beyond_are_done(tmp_path: Path) -> None:
    """The last round trained more steps than the resumed sweep needs: it returns the earlier results without an error."""
    asked = RunRequest(algorithm="ars", env="CartPole-v1", steps=100, eval_episodes=1, out=tmp_path / "x")
    first = sweep(Sweep(request=asked, seeds=(3,), jobs=1, executor="in-process"))
    trained = json.loads((tmp_path / "x/seed-3/run.json").read_text())["env_steps"]
    assert trained > 101
    more = stored(RunRequest(algorithm="ars", out=tmp_path / "x", resume=True, steps=101))
    assert more is not None
    assert sweep(more) == first


def test_an_interrupt_in_this_process_begins_no_other_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that was interrupted is not reported as finished, and the other seeds do not start."""

    class Stopped(StopOnInterrupt):
        def on_training_start(self, run: Any) -> None:
            self.interrupted = True

    with monkeypatch.context() as patch:
        patch.setattr("rlsdk.runs.runner.StopOnInterrupt", Stopped)
        with pytest.raises(KeyboardInterrupt):
            sweep(plan(tmp_path / "x", executor="in-process"))
        request = attrs.evolve(SMALL, settings={"seed": 0}, out=tmp_path / "y")
        stopped = _run_named(("seed 0", request), quiet=False, shared=None, here=False)
    assert (stopped.interrupted, stopped.mean) == (True, None)
    assert "interrupted at step" in str(stopped.error)
    assert not (tmp_path / "x/seed-4").exists()
    more = stored(RunRequest(algorithm="ars", out=tmp_path / "x", resume=True))
    assert more is not None
    assert [result.error for result in sweep(more)] == [None, None]


def test_a_sweep_goes_on_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    record_episodes("random", "CartPole-v1", 2, "demo", seed=0)
    settings = {"dataset": {"path": "demo.safetensors"}}
    asked = RunRequest(algorithm="bc", steps=5, eval_episodes=1, settings=settings, out=tmp_path / "x")
    sweep(Sweep(request=asked, seeds=(0,), jobs=1, executor="in-process"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    more = stored(RunRequest(algorithm="bc", out=tmp_path / "x", resume=True, steps=10))
    assert more is not None
    assert [result.error for result in sweep(more)] == [None]
    assert json.loads((tmp_path / "x/seed-0/run.json").read_text())["env_steps"] == 10


def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    command = [sys.executable, "-m", "rlsdk", "run", "ars", "--env", "CartPole-v1", "--steps", "16000", "--seeds", "2"]
    more = ["--jobs", "2", "--eval-every", "0", "--eval-episodes", "1", "--checkpoint-every", "2000", "--out", str(out)]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(out.glob("seed-*/checkpoints/*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 130, error
        assert b"--resume" in error
    known = stored(RunRequest(algorithm="ars", out=out, resume=True))
    assert known is not None
    results = sweep(known)
    assert all(result.error is None for result in results)
    for seed in (0, 1):
        assert json.loads((out / f"seed-{seed}/run.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_a_seed_that_was_stopped_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    first = sweep(plan(tmp_path / "runs"))
    seed = tmp_path / "runs/seed-3"
    record = json.loads((seed / "run.json").read_text())
    logged = len((seed / "metrics.csv").read_text().splitlines())
    (seed / "run.json").write_text(json.dumps({**record, "status": "running"}))
    for path in (seed / "checkpoints").iterdir():
        path.unlink()
    known = stored(RunRequest(algorithm="ars", out=tmp_path / "runs", resume=True))
    assert known is not None
    again = sweep(known)
    assert [result.error for result in again] == [None, None]
    assert [result.mean for result in again] == [result.mean for result in first]
    assert len((seed / "metrics.csv").read_text().splitlines()) == logged, "what the first try logged is gone"


def test_counts_are_checked() -> None:
    assert seeds_from(None, 2) == (0, 1)
    assert seeds_from(7, 2) == (7, 8)
    assert jobs_for(None, 1, 1) == 1
    for call in (lambda: seeds_from(0, 0), lambda: jobs_for(0, 2, 1)):
        with pytest.raises(RlsdkError, match="positive"):
            call()


def test_a_machine_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    """Such a machine would write its results to a folder that the program does not read."""
    request = attrs.evolve(SMALL, settings={"seed": 0}, out=tmp_path / "run")
    with pytest.raises(SettingsError, match=r"does not see .*sweep\.json.* a folder that all machines share"):
        run_all({"seed 0": request}, SerialExecutor(), tmp_path / "sweep.json")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("from_an_index")
def test_an_executor_in_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk.executors.choice.is_offered", lambda kind, name: False)
    with pytest.raises(
        SettingsError, match="executor 'ray' is in a package that is not installed: pip install rlsdk-ray"
    ):
        make_executor("ray", 1)


def test_work_that_was_begun_again_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with open_workers("processes", 1, {}) as executor:
        executor.repeated = 2  # type: ignore[attr-defined]
    assert "2 times work was begun again because a process or a machine died" in capsys.readouterr().err
