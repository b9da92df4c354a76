"""Sweeps, which are runs with several seeds in parallel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlsdk.callbacks.periodic import StopOnInterrupt
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.executors import SerialExecutor
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk_interchange import record_episodes
from rlsdk_lab.many_runs import _run_named, jobs_for, open_workers, run_all
from rlsdk_lab.sweep import Sweep, seeds_from, stored, sweep

SMALL = RunRequest(algorithm="ars", env="CartPole-v1", steps=1500, eval_episodes=1, checkpoint_every=500)


def plan(folder: Path, **changes: Any) -> Sweep:
    return Sweep(request=attrs.evolve(SMALL, out=folder), **{"seeds": (3, 4), "jobs": 2, **changes})


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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
    assert seeds_from(2**32 - 2, 2) == (2**32 - 2, 2**32 - 1)
    for first in (-5, 2**32 - 1, 10**30, "abc", 1.5):
        with pytest.raises(SettingsError, match=r"seed = .* must be a whole number from 0 to 4,294,967,294"):
            seeds_from(first, 2)  # type: ignore[arg-type]  # from --set
    for call in (lambda: seeds_from(0, 0), lambda: jobs_for(0, 2, 1)):
        with pytest.raises(RlsdkError, match="positive"):
            call()


def test_a_machine_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    """Such a machine would write its results to a folder that the program does not read."""
    request = attrs.evolve(SMALL, settings={"seed": 0}, out=tmp_path / "run")
    with pytest.raises(SettingsError, match=r"does not see .*sweep\.json.* a folder that all machines share"):
        run_all({"seed 0": request}, SerialExecutor(), tmp_path / "sweep.json")
    assert not (tmp_path / "run").exists()


def test_work_that_was_begun_again_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with open_workers("processes", 1, {}) as executor:
        executor.repeated = 2  # type: ignore[attr-defined]
    assert "work was repeated 2 times, as a process or a machine died" in capsys.readouterr().err
