"""Learning curves of several runs, and videos that can be read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlsdk.cli.main import app
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.experiments.plotting import _band, _curve, plot_runs
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


def test_curves_of_seeds_become_a_band(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / f"a{i}", "tqc", gain) for i, gain in enumerate((1.0, 2.0, 3.0))]
    runs.append(fake_run(tmp_path / "b", "trpo", 5.0))
    out = tmp_path / "pictures" / "curves.png"
    lines = plot_runs(runs, out, metric="rollout/ep_rew_mean")
    assert lines == [
        "tqc on Pendulum-v1, 3 seeds: rollout/ep_rew_mean ends at 20.00",
        "trpo on Pendulum-v1: rollout/ep_rew_mean ends at 50.00",
    ]
    assert out.read_bytes().startswith(b"\x89PNG")
    grid, mean, low, high = _band([_curve(run, "rollout/ep_rew_mean", "steps", 1) for run in runs[:3]])
    assert np.allclose(mean, grid / 100 * 2.0)
    assert np.allclose(low, grid / 100)
    assert np.allclose(high, grid / 100 * 3)
    assert plot_runs(runs, out)[0].startswith("tqc on Pendulum-v1, 3 seeds: eval/mean_reward ends at 6.00")
    hours, values = _curve(runs[0], "rollout/ep_rew_mean", "hours", 4)
    assert hours[-1] == pytest.approx(0.1)
    assert values[0] == 1.0
    assert values[-1] == pytest.approx((7 + 8 + 9 + 10) / 4)


def test_bad_requests_for_plots(tmp_path: Path) -> None:
    run, out = fake_run(tmp_path / "a", "tqc", 1.0), tmp_path / "x.png"
    with pytest.raises(SettingsError, match="steps, episodes, hours"):
        plot_runs([run], out, x="weeks")
    with pytest.raises(SettingsError, match="has logged no 'train/los'"):
        plot_runs([run], out, metric="train/los")
    with pytest.raises(SettingsError, match=r"metrics\.csv is missing"):
        plot_runs([tmp_path / "nowhere"], out)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.csv").write_text("step\n")
    with pytest.raises(SettingsError, match="holds no run"):
        plot_runs([tmp_path / "empty"], out, metric="step")
    with pytest.raises(SettingsError, match="at least one"):
        plot_runs([], out)
    assert not out.exists()


def test_the_command_draws_runs(tmp_path: Path) -> None:
    runs = [str(fake_run(tmp_path / f"a{i}", "tqc", 1.0 + i)) for i in range(2)]
    out = tmp_path / "c.png"
    done = CliRunner().invoke(app, ["plot", *runs, "-o", str(out), "--smooth", "2"])
    assert done.exit_code == 0, done.output
    assert "2 seeds" in done.output
    assert out.exists()


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
    assert list(out.parent.iterdir()) == [out]  # no half-written file beside it


def test_bad_requests_for_videos(tmp_path: Path) -> None:
    from rlsdk.experiments.video import record_video

    agent = TQC("MlpPolicy", "Pendulum-v1", seed=1, **SMALL)
    with pytest.raises(SettingsError, match=r"\.mp4 or \.gif"):
        record_video(agent, "Pendulum-v1", tmp_path / "video.avi")
    with pytest.raises(SettingsError, match="positive"):
        record_video(agent, "Pendulum-v1", tmp_path / "video.gif", episodes=0)
    with pytest.raises(RlsdkError, match=r"action_space|observation_space"):
        record_video(agent, "MountainCarContinuous-v0", tmp_path / "video.gif")
    with pytest.raises(EnvironmentFault, match=r"rgb_array|could not be made"):
        record_video(agent, "rlsdk/ChainEnv-v0", tmp_path / "video.gif")
    assert not list(tmp_path.iterdir())
