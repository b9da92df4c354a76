"""The sinks with the real tracking libraries, without a network: the tests read back what the libraries stored."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk.errors import SettingsError
from rlsdk.registry import extensions
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk.sinks import Image, MetricSink, Sink, Video
from rlsdk_trackers import MLflowSink, Tracker, TrackioSink, WandbSink

imageio = pytest.importorskip("imageio.v3")
SINKS = {"wandb": WandbSink, "mlflow": MLflowSink, "trackio": TrackioSink}
DETAILS = {"algorithm": "tqc", "env": "Pendulum-v1", "seed": 3}
pytestmark = pytest.mark.skipif(any(find_spec(name) is None for name in SINKS), reason="needs all three libraries")
VIDEO = Video(np.zeros((1, 4, 3, 15, 16), np.uint8), fps=10)


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the libraries write into one folder. They read most environment variables when they are imported."""
    folder = tmp_path_factory.mktemp("trackers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_DATA_DIR", str(folder))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        patch.delenv("WANDB_PROJECT", raising=False)
        patch.chdir(folder)
        yield folder


def wandb_records(folder: Path) -> list[Any]:
    """The records in the newest offline run below `folder`. Another process writes them, also after `finish`, so
    this waits for the last one."""
    found, until = list[Any](), time.monotonic() + 30
    while not (found and found[-1].WhichOneof("record_type") == "exit") and time.monotonic() < until:
        time.sleep(0.05)
        # the path has the time, so the last one is the newest
        found = _records_in(sorted(folder.rglob("run-*.wandb"))[-1].read_bytes())
    return found


def _records_in(data: bytes) -> list[Any]:
    """The records in a LevelDB log of protocol buffers."""
    from wandb.proto.wandb_internal_pb2 import Record

    place, part, found = 7, b"", list[Any]()
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        part += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            found.append(Record.FromString(part))
            part = b""
    return found


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    records = [record.history for record in wandb_records(folder) if record.WhichOneof("record_type") == "history"]
    return [
        {item.key or "|".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in records
    ]


def steps_of(name: str, folder: Path, metric: str) -> list[tuple[int, float]]:
    """The (step, value) pairs of a metric that the tracker stored."""
    stored = json.loads((folder / f"{name}.json").read_text())
    if name == "wandb":
        return [(row["_step"], row[metric]) for row in wandb_history(folder) if metric in row]
    if name == "mlflow":
        import mlflow

        history = mlflow.MlflowClient().get_metric_history(stored["id"], metric)
        return [(entry.step, entry.value) for entry in history]
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs(stored["project"], f"{stored['name']}-{stored['id'][:6]}")
    return [(row["step"], row[metric]) for row in rows if metric in row]


def written(name: str, folder: Path) -> Tracker:
    """A closed sink, after a run with everything that a sink takes."""
    sink = SINKS[name](folder)
    sink.begin_run(DETAILS, resumed=False)
    sink.hyperparameters({"gamma": 0.5, "policy": "MlpPolicy", "use_sde": False})
    for step in (10, 20):
        sink.write(step, {"rollout/ep_rew_mean": -float(step), "train/loss": 0.5})
    shown = sink.media(20, {"clip": VIDEO, "frame": Image(np.zeros((8, 8, 3), np.uint8)), "note": "a <b> text"})
    assert shown == ["clip", "frame", "note"]
    assert sink.histograms(20, {"w": np.arange(5.0)}) is (name != "mlflow")
    (folder / "final.rlsdk").write_bytes(b"agent")
    imageio.imwrite(folder / "film.gif", np.zeros((2, 8, 8, 3), np.uint8))
    sink.take_files([folder / "final.rlsdk", folder / "film.gif"])
    sink.close()
    return sink


@pytest.mark.parametrize("name", SINKS)
def test_a_run_is_written_and_resumed(name: str, tmp_path: Path) -> None:
    sink = written(name, tmp_path)
    assert isinstance(sink, MetricSink)
    methods = ("begin_run", "hyperparameters", "media", "histograms", "take_files")
    kinds = [[[*signature(getattr(kind, name)).parameters] for name in methods] for kind in (Sink, type(sink))]
    assert kinds[0] == kinds[1]
    assert steps_of(name, tmp_path, "rollout/ep_rew_mean") == [(10, -10.0), (20, -20.0)]
    CHECKS[name](tmp_path)
    before = json.loads((tmp_path / f"{name}.json").read_text())

    again = SINKS[name](tmp_path)
    again.begin_run({**DETAILS, "steps": 40}, resumed=True)
    again.hyperparameters({"gamma": 0.5})
    for step in (20, 30):  # the training repeats steps since its last checkpoint
        again.write(step, {"rollout/ep_rew_mean": -float(step)})
    again.close()
    after = json.loads((tmp_path / f"{name}.json").read_text())
    assert (after["id"], after["last_step"]) == (before["id"], 30)
    found = steps_of(name, tmp_path, "rollout/ep_rew_mean")
    new = [(30, -30.0)]  # offline, wandb uses another folder for each session
    assert found == (new if name == "wandb" else [(10, -10.0), (20, -20.0), *new])


def check_wandb(folder: Path) -> None:
    records = wandb_records(folder)
    begun = next(record.run for record in records if record.WhichOneof("record_type") == "run")
    assert (begun.project, begun.run_group) == ("rlsdk", "tqc on Pendulum-v1")
    assert begun.run_id == json.loads((folder / "wandb.json").read_text())["id"]
    settings = [r.config for r in records if r.WhichOneof("record_type") == "config"]
    values = {item.key: item.value_json for change in (begun.config, *settings) for item in change.update}
    assert (values["gamma"], values["seed"]) == ("0.5", "3")
    items = [item for row in wandb_history(folder) for item in row.items()]
    media = {name.removesuffix("|_type"): kind for name, kind in items if name.endswith("|_type")}
    kinds = {"clip": "video-file", "frame": "image-file", "note": "html-file", "parameters/w": "histogram"}
    assert media == {**kinds, "video/film": "video-file"}
    stored = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert [entry.path for artifact in stored for entry in artifact.manifest.contents] == ["final.rlsdk"]


def _is_media(value: object) -> bool:
    return isinstance(value, dict) and "_type" in value


def check_mlflow(folder: Path) -> None:
    import mlflow

    client, run_id = mlflow.MlflowClient(), json.loads((folder / "mlflow.json").read_text())["id"]
    stored = client.get_run(run_id)
    assert (stored.data.params["gamma"], stored.data.params["seed"], stored.info.status) == ("0.5", "3", "FINISHED")
    assert stored.data.tags["group"] == "tqc on Pendulum-v1"
    files = [f.path for place in ("agent", "media/clip", "media/note") for f in client.list_artifacts(run_id, place)]
    step = "step_000000020"
    assert files == ["agent/film.gif", "agent/final.rlsdk", f"media/clip/{step}.mp4", f"media/note/{step}.txt"]


def check_trackio(folder: Path) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    stored = json.loads((folder / "trackio.json").read_text())
    name = f"{stored['name']}-{stored['id'][:6]}"
    config = SQLiteStorage.get_run_config(stored["project"], name)
    assert config is not None
    assert (config["gamma"], config["seed"], config["_Group"]) == (0.5, 3, "tqc on Pendulum-v1")
    rows = SQLiteStorage.get_logs(stored["project"], name)
    media = {key: value["_type"] for row in rows for key, value in row.items() if _is_media(value)}
    assert {media["clip"], media["video/film"]} == {"trackio.video"}
    assert (media["frame"], media["parameters/w"]) == ("trackio.image", "trackio.histogram")
    assert any(entry["name"].startswith("agent-") for entry in SQLiteStorage.list_artifacts(stored["project"]))


CHECKS = {"wandb": check_wandb, "mlflow": check_mlflow, "trackio": check_trackio}


def test_a_command_line_run_is_tracked_and_continued(offline: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"n_steps": 32, "seed": 1}
    first = RunRequest(
        algorithm="ppo", env="CartPole-v1", steps=64, n_envs=1, settings=settings, eval_episodes=1, out=out,
        eval_every=32, sinks=("mlflow",),
    )  # fmt: skip
    run(first)
    before = steps_of("mlflow", out, "eval/mean_reward")
    assert [step for step, _ in before] == [32, 64]
    run(RunRequest(algorithm="ppo", steps=96, resume=True, out=out))
    assert [step for step, _ in steps_of("mlflow", out, "eval/mean_reward")] == [32, 64, 96]
    import mlflow

    client, run_id = mlflow.MlflowClient(), json.loads((out / "mlflow.json").read_text())["id"]
    stored = client.get_run(run_id)
    params, tags = stored.data.params, stored.data.tags
    assert (params["steps"], tags["resumed.steps"], params["env"], params["n_steps"]) == (
        "64",
        "96",
        "CartPole-v1",
        "32",
    )
    assert {Path(f.path).name for f in client.list_artifacts(run_id, "agent")} == {
        "best.rlsdk", "config.toml", "final.rlsdk",
    }  # fmt: skip
    place = mlflow.artifacts.download_artifacts(
        run_id=run_id, artifact_path="agent/final.rlsdk", dst_path=str(tmp_path)
    )
    assert rlsdk.load(place, env="CartPole-v1").num_timesteps == 96


def test_a_run_that_fails_is_marked(tmp_path: Path) -> None:
    import mlflow

    sink = MLflowSink(tmp_path)
    sink.begin_run(DETAILS, resumed=False)
    try:
        raise ValueError("no")
    except ValueError:
        sink.close()
    run_id = json.loads((tmp_path / "mlflow.json").read_text())["id"]
    assert mlflow.MlflowClient().get_run(run_id).info.status == "FAILED"


def test_mlflow_names_the_database_that_nobody_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    MLflowSink(tmp_path / "chosen").begin_run(DETAILS, resumed=False)
    assert "MLflow writes to" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    MLflowSink(tmp_path / "run").begin_run(DETAILS, resumed=False)
    assert f"MLflow writes to sqlite:///{tmp_path}/mlflow.db; set MLFLOW_TRACKING_URI" in capsys.readouterr().out


@pytest.mark.parametrize("name", SINKS)
def test_a_missing_library_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError) as raised:
        SINKS[name](tmp_path)
    assert re.search(rf'pip install .*"[^"]*rlsdk-trackers\[{name}\]"$', str(raised.value))
    assert "\n" not in str(raised.value)


def test_a_tracker_that_refuses_ends_the_run_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def refuse(**_: object) -> None:
        raise wandb.errors.UsageError("No API key configured")

    monkeypatch.setattr(wandb, "init", refuse)
    request = RunRequest(
        algorithm="ppo", env="CartPole-v1", steps=64, n_envs=1, settings={"n_steps": 32}, out=tmp_path / "r",
        sinks=("wandb",),
    )  # fmt: skip
    with pytest.raises(SettingsError, match="wandb login"):
        run(request)
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "failed"
    assert not (tmp_path / "r/metrics.csv").exists()


def test_a_server_of_mlflow_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    """MLflow's own patience would be four minutes; see IMPATIENT."""
    program = f"""
from rlsdk_trackers import MLflowSink
MLflowSink({str(tmp_path)!r}).begin_run({{}}, resumed=False)
"""
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    *_, last = done.stderr.splitlines()
    assert "SettingsError: MLflow cannot begin a run (MlflowException: " in last
    assert last.endswith("see that the server of MLFLOW_TRACKING_URI answers")


def test_a_folder_where_trackio_cannot_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import trackio

    (tmp_path / "file").touch()
    monkeypatch.setattr(trackio.utils, "TRACKIO_DIR", tmp_path / "file")
    with pytest.raises(SettingsError, match=r"trackio cannot begin a run .*; see that TRACKIO_DIR can be written"):
        TrackioSink(tmp_path).begin_run(DETAILS, resumed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not what a tracker wrote"),
        ('{"id": "../x", "name": "a", "project": "p", "last_step": 1}', "not the id of a run"),
        ('{"id": "x", "name": "a", "project": "p", "last_step": "1"}', "not a number of steps"),
        ('{"id": "x", "name": "a\\u001b", "project": "p", "last_step": 1}', "short texts"),
    ],
)
def test_a_damaged_file_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text(text)
    with pytest.raises(SettingsError, match=reason):
        MLflowSink(tmp_path, resume=True).write(1, {"a": 1.0})


def test_programs_may_leave_out_the_beginning(tmp_path: Path) -> None:
    """A program may write without `begin_run`, and may write after `close`: both go to the same run."""
    sink = MLflowSink(tmp_path, project="own", run_name="mine")
    sink.write(1, {"a/b c(d)": 1.0})
    sink.close()
    sink.write(1, {"e": 2.0})
    sink.close()
    assert steps_of("mlflow", tmp_path, "a/b c_d_") == [(1, 1.0)]
    assert steps_of("mlflow", tmp_path, "e") == [(1, 2.0)]
    assert json.loads((tmp_path / "mlflow.json").read_text())["project"] == "own"


@pytest.mark.full
def test_looking_imports_no_tracker_and_no_torch() -> None:
    code = (
        "import sys, rlsdk_trackers\nfrom rlsdk_trackers.hooks import sinks\n"
        "print(sorted(sinks()), sorted({'torch', 'wandb', 'mlflow', 'trackio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['mlflow', 'trackio', 'wandb'] []"
    assert {"mlflow", "trackio", "wandb"} <= set(extensions("sinks"))
