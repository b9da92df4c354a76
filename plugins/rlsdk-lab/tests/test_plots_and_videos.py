"""Plots of learning curves over several runs, and videos of agents."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlsdk.cli.main import app
from rlsdk.errors import ArtifactError, EnvironmentFault, RlsdkError, SettingsError
from rlsdk.runs.directory import read_metric
from rlsdk_lab.curves import CurveSettings, curves, runs_below
from rlsdk_lab.plotting import PictureSettings, plot_runs
from rlsdk_tqc import TQC

SMALL: dict[str, Any] = {"buffer_size": 300, "learning_starts": 20, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}


def fake_run(folder: Path, algorithm: str, gain: float, evaluations: int = 3) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps({"algorithm": algorithm, "env": "Pendulum-v1", "steps": 1000, "n_envs": 1, "seed": 0})
    )
    rows = ["step,rollout/ep_rew_mean,time/time_elapsed,time/episodes,eval/mean_reward"]
    for k in range(1, 11):
        evaluation = k * gain if k <= evaluations else ""
        rows.append(f"{k * 100},{k * gain},{k * 36},{k},{evaluation}")
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    return folder


TRAINING = CurveSettings(metric="rollout/ep_rew_mean", band="range")


def test_curves_of_seeds_become_a_band(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / f"a{i}", "tqc", gain) for i, gain in enumerate((1.0, 2.0, 3.0))]
    runs.append(fake_run(tmp_path / "b", "trpo", 5.0))
    out = tmp_path / "pictures" / "curves.png"
    assert plot_runs(runs, out, TRAINING) == [
        "tqc, 3 seeds, Pendulum-v1: return of training episodes ends at 20.00 [10.00 .. 30.00]",
        "trpo, Pendulum-v1: return of training episodes ends at 50.00",
    ]
    content = out.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert b"Mean over seeds, range of the return of training episodes. tqc, 3 seeds, Pendulum-v1" in content

    tqc, trpo = curves(runs, TRAINING)
    assert np.allclose(tqc.value, tqc.x / 100 * 2.0)
    assert np.allclose(tqc.low, tqc.x / 100)
    assert np.allclose(tqc.high, tqc.x / 100 * 3)
    assert trpo.seeds == 1
    rows = list(csv.DictReader((out.parent / "curves.csv").read_text().splitlines()))
    assert len(rows) == 20
    assert [rows[9][name] for name in ("experiment", "seeds", "x", "value", "low", "high")] == [
        *("tqc", "3", "1000.0", "20.0", "10.0", "30.0"),
    ]
    assert curves(runs, CurveSettings())[0].value[-1] == 6.0, "evaluations, where all runs have them"
    once = fake_run(tmp_path / "once", "a2c", -1.0, evaluations=1)
    assert curves([*runs, once], CurveSettings())[-1].value.tolist() == [-1.0], "also if a run has one alone"
    (smoothed,) = curves(runs[:1], CurveSettings(metric="rollout/ep_rew_mean", x="time", smooth=4))
    assert smoothed.x[-1] == pytest.approx(0.1)
    assert smoothed.value[0] == 1.0
    assert smoothed.value[-1] == pytest.approx((7 + 8 + 9 + 10) / 4)


def test_statistics_and_bands_over_seeds_by_hand(tmp_path: Path) -> None:
    gains = (1.0, 2.0, 3.0, 10.0)
    runs = [fake_run(tmp_path / f"a{i}", "tqc", gain) for i, gain in enumerate(gains)]

    def last(**changes: Any) -> tuple[float, float, float]:
        (curve,) = curves(runs, CurveSettings(metric="rollout/ep_rew_mean", **changes))
        return curve.value[-1] / 10, curve.low[-1] / 10, curve.high[-1] / 10

    assert last(statistic="median", band="none") == (2.5, 2.5, 2.5)
    assert last(statistic="iqm", band="range") == (2.5, 1.0, 10.0)
    deviation = float(np.std(gains, ddof=1))
    assert last(band="deviation") == pytest.approx((4.0, 4.0 - deviation, 4.0 + deviation))
    value, low, high = last()
    assert value == 4.0
    assert 1.0 <= low < 2.5 < 6.0 < high <= 10.0
    assert (value, low, high) == last(), "the same runs give the same interval"


def test_a_column_of_texts(tmp_path: Path) -> None:
    """A column without any number is not a metric; a column with a text among numbers is a damaged file."""
    path = tmp_path / "metrics.csv"
    path.write_text("step,note,loss\n1,begun,0.5\n2,better,x\n")
    with pytest.raises(
        SettingsError, match=r"the metric 'note' of .*metrics\.csv has no numbers, for example 'begun'; choose"
    ):
        read_metric(path, "note")
    with pytest.raises(SettingsError, match="is damaged"):
        read_metric(path, "loss")


def test_runs_with_other_points_meet_where_all_are_defined(tmp_path: Path) -> None:
    short, late = fake_run(tmp_path / "a", "tqc", 1.0), fake_run(tmp_path / "b", "tqc", 1.0)
    lines = (late / "metrics.csv").read_text().splitlines()
    (late / "metrics.csv").write_text("\n".join([lines[0], *lines[3:9]]) + "\n")
    (curve,) = curves([short, late], TRAINING)
    assert (curve.x[0], curve.x[-1]) == (300.0, 800.0)
    assert np.allclose(curve.value, curve.x / 100)


def test_other_settings_are_other_experiments(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / name, "tqc", 1.0) for name in "abcd"]
    for seed, (run, rate) in enumerate(zip(runs, ("1e-3", "1e-3", "3e-4", "3e-4"), strict=True)):
        (run / "config.toml").write_text(f"learning_rate = {rate}\nseed = {seed}\n[policy_kwargs]\nnet_arch = [64]\n")
    found = curves(runs, TRAINING)
    assert [(curve.label, curve.seeds) for curve in found] == [
        ("tqc, learning_rate = 0.001", 2),
        ("tqc, learning_rate = 0.0003", 2),
    ]
    many = "".join(f"s{k} = 1\n" for k in range(5))
    (runs[0] / "config.toml").write_text(many)
    labels = [curve.label for curve in curves(runs[:2], TRAINING)]
    assert labels == [
        "tqc, s0 = 1, s1 = 1, s2 = 1, and 2 more",
        "tqc, learning_rate = 0.001, policy_kwargs.net_arch = [64]",
    ]
    (runs[0] / "config.toml").write_text("learning_rate = [")
    with pytest.raises(SettingsError, match=r"config\.toml is not valid TOML"):
        curves(runs, TRAINING)


def test_bad_requests_for_plots(tmp_path: Path) -> None:
    run, out = fake_run(tmp_path / "a", "tqc", 1.0), tmp_path / "x.png"
    for wrong, words in (
        ({"x": "weeks"}, "steps, episodes, time"),
        ({"statistic": "mode"}, "mean, iqm, median"),
        ({"band": "ci"}, "interval, range"),
        ({"smooth": 0}, "positive"),
    ):
        with pytest.raises(SettingsError, match=words):
            CurveSettings(**wrong)
    for wrong, words in (({"log": "z"}, "none, x, y, xy"), ({"size": (0.0, 4.0)}, "1 to 100 inches")):
        with pytest.raises(SettingsError, match=words):
            PictureSettings(**wrong)
    with pytest.raises(SettingsError, match="has logged no 'train/los'"):
        plot_runs([run], out, CurveSettings(metric="train/los"))
    with pytest.raises(SettingsError, match=r"metrics\.csv is missing"):
        plot_runs([tmp_path / "nowhere"], out)
    with pytest.raises(SettingsError, match="not supported"):
        plot_runs([run], tmp_path / "x.xyz")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.csv").write_text("step\n")
    with pytest.raises(SettingsError, match="holds no run"):
        plot_runs([tmp_path / "empty"], out, CurveSettings(metric="step"))
    with pytest.raises(SettingsError, match="holds no run"):
        runs_below([tmp_path / "empty"])
    for nothing in (lambda: runs_below([]), lambda: plot_runs([], out)):
        with pytest.raises(SettingsError, match="at least one"):
            nothing()
    assert not out.exists()
    assert not list(tmp_path.glob("x.*"))


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_command_draws_every_run_of_a_folder(suffix: str, start: bytes, tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / f"a{i}", "tqc", 1.0 + i) for i in range(2)]
    record = json.loads((runs[1] / "run.json").read_text())
    (runs[1] / "run.json").write_text(json.dumps({**record, "env": "CartPole-v1"}))
    options = [
        "--smooth",
        "2",
        "--title",
        "Mine: 5 $",
        "--size",
        "9x3",
        "--log",
        "xy",
        "--format",
        suffix,
        "--x",
        "time",
    ]
    done = CliRunner().invoke(app, ["plot", str(tmp_path), "-o", str(tmp_path / "c.png"), *options])
    assert done.exit_code == 0, done.output
    assert "CartPole-v1" in done.output
    assert (tmp_path / f"c.{suffix}").read_bytes().startswith(start)
    assert (tmp_path / "c.csv").exists()
    wrong = CliRunner().invoke(app, ["plot", str(tmp_path), "--size", "9"])
    assert wrong.exit_code != 0


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_is_written_and_can_be_read_back(suffix: str, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    agent = TQC("MlpPolicy", "Pendulum-v1", seed=1, **SMALL)
    agent.save(tmp_path / "agent")
    out = tmp_path / "videos" / f"video{suffix}"
    done = CliRunner().invoke(app, ["record", str(tmp_path / "agent.rlsdk"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "200 frames at 30 per second" in done.output
    frames = imageio.imread(out, plugin="FFMPEG") if suffix == ".mp4" else imageio.imread(out, index=None)
    assert frames.shape[0] == 200
    assert frames.shape[1:3] == (500, 500)
    assert float(np.abs(frames[0].astype(float) - frames[-1].astype(float)).mean()) > 0.1  # something moves
    assert list(out.parent.iterdir()) == [out]  # there is no temporary file left


def test_bad_requests_for_videos(tmp_path: Path) -> None:
    from rlsdk_lab.video import record_video

    agent = TQC("MlpPolicy", "Pendulum-v1", seed=1, **SMALL)
    with pytest.raises(SettingsError, match=r"\.mp4 or \.gif"):
        record_video(agent, "Pendulum-v1", tmp_path / "video.avi")
    with pytest.raises(SettingsError, match="positive"):
        record_video(agent, "Pendulum-v1", tmp_path / "video.gif", episodes=0)
    with pytest.raises(RlsdkError, match=r"action_space|observation_space"):
        record_video(agent, "MountainCarContinuous-v0", tmp_path / "video.gif")
    with pytest.raises(EnvironmentFault, match=r"rgb_array|could not be made"):
        record_video(agent, "rlsdk/ChainEnv-v0", tmp_path / "video.gif")
    for other in ("agent.rlsdk", None, TQC):
        with pytest.raises(SettingsError, match="a video needs an agent, got"):
            record_video(other, "Pendulum-v1", tmp_path / "video.gif")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_picture_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves the picture and the numbers that were there before."""
    folder, output = fake_run(tmp_path / "a", "tqc", 1.0), tmp_path / "curves.png"
    plot_runs([folder], output)
    before = output.read_bytes(), output.with_suffix(".csv").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SettingsError, match=r"cannot write the picture .*curves\.png: No space left on device"):
        plot_runs([folder], output, CurveSettings(smooth=3))
    assert (output.read_bytes(), output.with_suffix(".csv").read_bytes()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"a", "curves.png", "curves.csv"}


@pytest.mark.full
def test_a_video_of_which_a_part_is_missing_is_no_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ffmpeg fails at the end where the disk is full, and imageio does not report it."""
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    from rlsdk_lab.video import record_video

    write = imageio.imwrite

    def cut(path: Path, *arguments: Any, **options: Any) -> None:
        write(path, *arguments, **options)
        os.truncate(path, path.stat().st_size // 2)

    monkeypatch.setattr(imageio, "imwrite", cut)
    agent = TQC("MlpPolicy", "Pendulum-v1", seed=1, **SMALL)
    with pytest.raises(
        ArtifactError, match="of 200 frames are in the file; the disk may be full; choose another place"
    ):
        record_video(agent, "Pendulum-v1", tmp_path / "video.mp4", episodes=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("command", ["watch", "enjoy"])
def test_watching_without_a_screen_writes_a_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [command, "tqc/Pendulum-v1", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "watch.gif: 200 frames" in done.output
    assert (tmp_path / "watch.gif").read_bytes().startswith(b"GIF8")


def test_watching_in_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a window without a screen
    monkeypatch.chdir(tmp_path)
    TQC("MlpPolicy", "Pendulum-v1", **SMALL).save(tmp_path / "agent")
    done = CliRunner().invoke(app, ["watch", "agent", "--env-kwargs", "max_episode_steps=3", "--episodes", "2"])
    assert done.exit_code == 0, done.output
    assert done.output.count(",") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["agent.rlsdk"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/nothing"], "there is no file or folder runs/nothing"),
        (["tqc/Pendulun-v1"], "did you mean"),
        (["tqc/Pendulum-v1", "--out", "x.txt"], "must end in .mp4 or .gif"),
    ],
)
def test_watching_what_is_not_there(words: list[str], message: str) -> None:
    error = CliRunner().invoke(app, ["watch", *words]).exception
    assert isinstance(error, RlsdkError)
    assert message in str(error)
