"""Run folders of unknown origin: they cannot choose modules to import or paths to write, and damage is one clear error."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
from rlsdk.buffers import rows
from rlsdk.buffers.rows import OnDisk
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.runs.directory import RunDirectory, claimed, read_metric
from rlsdk.runs.request import RunRecord, RunRequest
from rlsdk.runs.runner import run
from rlsdk.settings import load_settings
from rlsdk_lab import Bench, Cell, Suite, bench, scores_below
from rlsdk_lab.plotting import plot_runs
from rlsdk_lab.sweep import Sweep, stored, sweep
from tests.runs.test_resumed_options import BASE

MODULE = """
import pathlib, gymnasium
pathlib.Path({mark!r}).touch()
from rlsdk_envs.toy import IdentityEnv
gymnasium.register("Own-v0", IdentityEnv)
"""
RESUME = RunRequest(algorithm="trpo", resume=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(attrs.evolve(BASE, out=folder))
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder of the finished run."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the module `foreign_module`; the file that this fixture returns appears when the module is imported."""
    mark = tmp_path / "imported"
    (tmp_path / "foreign_module.py").write_text(MODULE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    yield mark
    sys.modules.pop("foreign_module", None)


def changed(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


FOREIGN = "foreign_module:Own-v0"


def test_a_record_imports_no_module(folder: Path, module: Path) -> None:
    changed(folder / "run.json", env=FOREIGN, steps=64)
    with pytest.raises(SettingsError, match="--trust"):
        run(attrs.evolve(RESUME, out=folder))
    with pytest.raises(SettingsError, match="leave out --env"):
        run(attrs.evolve(RESUME, out=folder, env="CartPole-v1"))
    assert not module.exists()
    run(attrs.evolve(RESUME, out=folder, trust=True))
    assert module.exists()


def test_an_environment_that_is_given_again_is_trusted(folder: Path, module: Path) -> None:
    changed(folder / "run.json", env=FOREIGN, steps=56)
    assert not run(attrs.evolve(RESUME, out=folder, env=FOREIGN)).needs_trust
    run(attrs.evolve(RESUME, out=folder, steps=64))  # since then it is a run of this user


def test_a_sweep_imports_no_module(tmp_path: Path, module: Path) -> None:
    request = attrs.evolve(
        BASE, out=tmp_path / "sweep", settings={k: v for k, v in BASE.settings.items() if k != "seed"}
    )
    sweep(Sweep(request=request, seeds=(0,), jobs=1, executor="in-process"))
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    changed(tmp_path / "sweep" / "sweep.json", request={**record["request"], "env": FOREIGN})
    asked = attrs.evolve(RESUME, out=tmp_path / "sweep")
    with pytest.raises(SettingsError, match="--trust"):
        stored(asked)
    assert stored(attrs.evolve(asked, trust=True)) is not None
    with pytest.raises(SettingsError, match="runs of 'trpo', not of 'ars'"):
        stored(attrs.evolve(asked, algorithm="ars"))
    elsewhere = {**record["request"], "settings": {"tensorboard_log": "/nowhere"}}
    changed(tmp_path / "sweep" / "sweep.json", request=elsewhere)
    with pytest.raises(SettingsError, match=r"place to write, tensorboard_log = '/nowhere'"):
        stored(asked)


def test_a_seed_of_a_sweep_imports_no_module(tmp_path: Path, module: Path) -> None:
    request = attrs.evolve(
        BASE, out=tmp_path / "sweep", settings={k: v for k, v in BASE.settings.items() if k != "seed"}
    )
    plan = Sweep(request=request, seeds=(0,), jobs=1, executor="in-process")
    sweep(plan)
    changed(tmp_path / "sweep" / "seed-0" / "run.json", env=FOREIGN, status="running")
    again = stored(attrs.evolve(RESUME, out=tmp_path / "sweep"))
    assert again is not None
    (result,) = sweep(again)
    assert "leave out --env" in str(result.error)
    assert not module.exists()


def test_settings_and_suites_import_no_module(cli: Any, module: Path, tmp_path: Path) -> None:
    Path("own.toml").write_text(f'policy = "MlpPolicy"\nenv = "{FOREIGN}"\nn_steps = 8\nbatch_size = 8\n')
    code, _, err = cli("run", "trpo", "--config", "own.toml", "--steps", "8")
    assert (code, "--trust" in err) == (1, True)
    Path("suite.toml").write_text(f'[[cells]]\nalgorithm = "trpo"\nenv = "{FOREIGN}"\nsteps = 8\n')
    code, _, err = cli("bench", "suite.toml", "--seeds", "1")
    assert (code, "--trust" in err) == (1, True)
    assert not module.exists()
    short = ("--steps", "8", "--eval-every", "0", "--eval-episodes", "1", "--out", "run")
    code, _, err = cli("run", "trpo", "--config", "own.toml", *short, "--trust")
    assert code == 0, err
    assert "--trust" in Path("run/config.toml").read_text(), "the command that repeats the run"


def test_a_record_names_no_place(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    changed(folder / "run.json", places={"tensorboard_log": str(tmp_path / "elsewhere")}, steps=56)
    with pytest.raises(SettingsError, match="--set tensorboard_log="):
        run(attrs.evolve(RESUME, out=folder))
    assert not (tmp_path / "elsewhere").exists()
    run(attrs.evolve(RESUME, out=folder, settings={"tensorboard_log": str(tmp_path / "mine")}))
    assert list((tmp_path / "mine").glob("*/events*"))
    changed(folder / "run.json", places={"tensorboard_log": str(folder / "events")}, steps=64)
    run(attrs.evolve(RESUME, out=folder))
    assert list((folder / "events").glob("*/events*"))


def test_a_replay_memory_is_on_disk_again_where_its_directory_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    class Noted(OnDisk):
        def __init__(self, directory: str | Path, device: str) -> None:
            used.append(str(directory))
            super().__init__(directory, device)

    monkeypatch.setattr(rows, "OnDisk", Noted)
    first, second = ({"replay_buffer_kwargs": {"directory": str(tmp_path / name)}} for name in ("first", "second"))
    small = {"policy_kwargs": {"net_arch": [4]}, "buffer_size": 100, "learning_starts": 100, "seed": 0}
    request = RunRequest(
        algorithm="tqc",
        env="rlsdk/IdentityEnvBox-v0",
        steps=16,
        n_envs=1,
        settings={**small, **first},
        out=tmp_path / "run",
        eval_every=0,
        eval_episodes=1,
        use_preset=False,
    )
    run(request)
    resumed = RunRequest(algorithm="tqc", out=tmp_path / "run", resume=True)
    changed(tmp_path / "run" / "run.json", made_here="")  # as if someone else had made it
    with pytest.raises(SettingsError, match=r"--set replay_buffer_kwargs\.directory="):
        run(resumed)
    run(attrs.evolve(resumed, steps=24, trust=True))
    run(attrs.evolve(resumed, steps=32, settings=second))
    assert used == [str(tmp_path / name) for name in ("first", "first", "second")]


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl", "checkpoints", "learning_curve.png"])
def test_a_link_in_a_run_folder_is_not_followed(name: str, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    shutil.move(folder / name, target)
    (folder / name).symlink_to(target)
    with pytest.raises(SettingsError, match="is a link"):
        run(attrs.evolve(RESUME, out=folder, steps=56))
    run(attrs.evolve(RESUME, out=folder, steps=56, trust=True))


def test_a_run_that_goes_on_is_named(folder: Path) -> None:
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with claimed(folder):
            os.write(ready[1], b"x")
            os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        with pytest.raises(SettingsError, match=f"a run is running in .*, by process {child} on "):
            run(attrs.evolve(RESUME, out=folder, steps=56))
        with pytest.raises(SettingsError, match=f"by process {child} on "):
            run(attrs.evolve(BASE, out=folder))
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
    run(attrs.evolve(RESUME, out=folder, steps=56))
    assert not (folder / ".running").exists()


VALUES = [None, True, -1, 0, 2**70, 0.5, -1e308, "x", "", "\x1b[2J\ud800", [], [[]], {}, {"a": [1]}, "../..", "a:b"]
REQUIRED = ("algorithm", "env", "steps", "n_envs", "seed")


def altered(table: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A copy of the table in which one entry, at any depth, is removed or replaced."""
    copied = copy.deepcopy(table)
    at: Any = copied
    while True:
        key = draw.choice(sorted(at))
        if isinstance(at[key], dict) and at[key] and draw.random() < 0.7:
            at = at[key]
            continue
        if draw.random() < 0.15:
            del at[key]
        else:
            at[key] = draw.choice(VALUES)
        return copied


def attempts(folder: Path, *, resume: bool) -> None:
    """Call everything that reads a run folder; each call may return a result or raise an `RlsdkError`."""
    for look in (
        lambda: RunDirectory(folder).read_record().as_table(),
        lambda: scores_below(folder),
        lambda: plot_runs([folder], folder.parent / "picture.png"),
        lambda: RunDirectory(folder).best_evaluation(),
        lambda: run(attrs.evolve(RESUME, out=folder)) if resume else None,
    ):
        with contextlib.suppress(RlsdkError):
            look()


def fuzz_records(finished: Path, place: Path, count: int, seed: int) -> None:
    draw, record = random.Random(seed), json.loads((finished / "run.json").read_text())
    for number in range(count):
        new = altered(record, draw)
        light = isinstance(new.get("n_envs"), int) and new.get("steps") == record["steps"]
        folder = place / str(number)
        shutil.copytree(finished, folder)
        (folder / "run.json").write_text(json.dumps(new))
        attempts(folder, resume=light)
        shutil.rmtree(folder)


def test_altered_records(finished: Path, tmp_path: Path) -> None:
    fuzz_records(finished, tmp_path, 15, 0)


@pytest.mark.slow
def test_many_altered_records(finished: Path, tmp_path: Path) -> None:
    fuzz_records(finished, tmp_path, 300, 1)


@pytest.mark.parametrize("name", REQUIRED)
def test_an_entry_that_is_missing_is_named(name: str, folder: Path) -> None:
    record = json.loads((folder / "run.json").read_text())
    for table in ({k: v for k, v in record.items() if k != name}, {**record, name: []}):
        (folder / "run.json").write_text(json.dumps(table))
        with pytest.raises(SettingsError, match=rf"run\.json is damaged: .*{name}"):
            RunRecord.read(folder / "run.json")


DAMAGED = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"[" * 5000,
    b"1" * 5000,
    b'{"steps": ' + b"9" * 5000 + b"}",
    b"\x00",
    b"nan",
    b'"x"',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_tables(content: bytes, folder: Path, tmp_path: Path) -> None:
    (folder / "run.json").write_bytes(content)
    attempts(folder, resume=True)
    with pytest.raises(SettingsError, match=r"run\.json is damaged"):
        RunRecord.read(folder / "run.json")
    (tmp_path / "sweep.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"sweep\.json is damaged"):
        stored(attrs.evolve(RESUME, out=tmp_path))
    suite = Suite(name="own", description="", cells=(Cell(algorithm="trpo", env="rlsdk/IdentityEnv-v0", steps=8),))
    plan = Bench(suite=suite, seeds=(0,), out=tmp_path, executor="in-process")
    (tmp_path / "sweep.json").unlink()
    (tmp_path / "bench.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"bench\.json is damaged"):
        bench(plan)
    (tmp_path / "settings.toml").write_bytes(content)
    if content:
        with pytest.raises(SettingsError, match=r"settings\.toml"):
            load_settings(tmp_path / "settings.toml")


METRICS = [
    b"\xff\xfe\x00",
    b"step,eval/mean_reward\nx,1\n",
    b"step,eval/mean_reward\n1,x\n",
    b"step,eval/mean_reward\ninf,1\n2,nan\n",
    b"step,step,step\n1,2,3\n1,2,3,4,5,6\n",
    b"step,eval/mean_reward\n1,1e308\n2,-1e308\n3,1\n",
    b"step,eval/mean_reward\n1," + b"9" * 200_000 + b"\n",
    b"\x00\x00",
    b"",
]


@pytest.mark.parametrize("content", METRICS, ids=range(len(METRICS)))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_metrics(content: bytes, folder: Path) -> None:
    changed(folder / "run.json", steps=56)
    for name in ("metrics.csv", "metrics.jsonl"):
        (folder / name).write_bytes(content)
    attempts(folder, resume=True)


def test_metrics_that_are_no_file(folder: Path) -> None:
    """Named pipes in place of files are refused: reading one would block for ever."""
    for name in ("metrics.csv", "run.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(SettingsError, match=f"{name} is missing, or is not a file"):
            read_metric(folder / "metrics.csv", "x") if name == "metrics.csv" else RunRecord.read(folder / name)
    attempts(folder, resume=True)


SWEEP = {
    "request": {"algorithm": "trpo", "env": "rlsdk/IdentityEnv-v0", "settings": {}, "sinks": None},
    "seeds": [0],
    "jobs": 1,
}


def test_altered_sweeps(tmp_path: Path) -> None:
    draw = random.Random(0)
    for _ in range(300):
        (tmp_path / "sweep.json").write_text(json.dumps(altered(SWEEP, draw)))
        with contextlib.suppress(RlsdkError):
            stored(attrs.evolve(RESUME, out=tmp_path))


def test_a_file_beside_a_damaged_record_can_still_be_read(folder: Path) -> None:
    (folder / "run.json").write_text("{}")
    assert rlsdk.load(folder / "final").num_timesteps == 48
