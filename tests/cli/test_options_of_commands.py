"""Options of commands: values out of range, options that exclude each other, and the paths that commands print."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.executors import make_executor
from rlsdk_interchange import record_episodes
from rlsdk_lab import load_suite
from rlsdk_lab.video import record_video

SUITE = """
[suite]
description = "one cell"
[ranges]
CartPole-v1 = {range}
[[cells]]
algorithm = "ppo"
env = "CartPole-v1"
steps = 64
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "agent.rlsdk"
    rlsdk.make("ppo", env="CartPole-v1", seed=0, n_steps=16, batch_size=16, policy_kwargs={"net_arch": [4]}).save(path)
    return path


@pytest.mark.parametrize("seed", ["-1", str(2**32), "9" * 26])
@pytest.mark.parametrize(
    "command",
    [
        ("eval", "agent.rlsdk"),
        ("record", "agent.rlsdk", "-o", "v.gif"),
        ("record-episodes", "agent.rlsdk"),
        ("tune", "ppo", "--env", "CartPole-v1", "--steps", "64", "--out", "study"),
    ],
)
def test_seeds_out_of_range(cli: Any, command: tuple[str, ...], seed: str) -> None:
    code, _, err = cli(*command, "--seed", seed)
    assert (code, "'--seed'" in err, "Traceback" in err) == (2, True, False)
    assert not Path("study").exists()


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True])
def test_seeds_out_of_range_in_python(agent: Path, tmp_path: Path, seed: Any) -> None:
    loaded = rlsdk.load(agent)
    with pytest.raises(SettingsError, match="must be a whole number from 0 to"):
        loaded.session(seed=seed)
    with pytest.raises(SettingsError, match="must be a whole number from 0 to"):
        record_episodes(loaded, "CartPole-v1", 1, tmp_path / "demo", seed=seed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("run", "ppo", "--env", "CartPole-v1", "--steps", "64", "--stop-at", "5", "--eval-every", "0"),
            "--stop-at needs",
        ),
        (("record-episodes", "--random", "--deterministic", "--env", "CartPole-v1"), "--deterministic belongs to"),
    ],
)
def test_options_that_do_not_go_together(cli: Any, options: tuple[str, ...], words: str) -> None:
    code, _, err = cli(*options)
    assert (code, words in err) == (1, True)


def test_pictures_without_a_suffix_are_png(cli: Any) -> None:
    code, _, err = cli("run", "ppo", "--env", "CartPole-v1", "--steps", "64", "--set", "n_steps=32", "--out", "one")
    assert code == 0, err
    code, out, err = cli("plot", "one", "-o", "curve")
    assert code == 0, err
    assert "picture: curve.png    numbers: curve.csv" in out
    assert Path("curve.png").is_file()


def test_the_suffix_chooses_the_format_of_an_export(cli: Any, agent: Path, tmp_path: Path) -> None:
    target = tmp_path / "policy.pt2"
    code, _, err = cli("export", str(agent), "-o", str(target))
    assert code == 0, err
    assert target.read_bytes()[:2] == b"PK"  # torch's archives are zip files
    code, _, err = cli("export", str(agent), "-o", str(target), "--format", "onnx")
    assert (code, "has the suffix of torch-export" in err) == (1, True)


def test_a_number_is_no_suffix_of_an_export_or_a_data_set(cli: Any, agent: Path) -> None:
    code, _, err = cli("export", str(agent), "-o", "policy-0.5_seed1")
    assert code == 0, err
    assert Path("policy-0.5_seed1.onnx").is_file()
    code, _, err = cli("record-episodes", str(agent), "--episodes", "1", "--out", "demo-0.5")
    assert code == 0, err
    assert Path("demo-0.5.safetensors").is_file()
    assert cli("inspect", "demo-0.5")[0] == 0


@pytest.mark.parametrize("span", ["[500.0, 24.5]", "[500, 500]", "[0, inf]"])
def test_ranges_of_suites_rise(tmp_path: Path, span: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(SUITE.format(range=span))
    with pytest.raises(SettingsError, match=r"of CartPole-v1 must be \[low, high\]"):
        load_suite(str(path))


def test_suites_are_listed_as_json(cli: Any) -> None:
    code, out, _ = cli("bench", "--json")
    assert code == 0
    assert {"classic", "mujoco-1m"} <= {entry["name"] for entry in json.loads(out)}


def test_a_video_that_cannot_be_written(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be written"):
        record_video(rlsdk.load(agent), "CartPole-v1", tmp_path / "file" / "video.gif")


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_video_for_which_the_disk_has_no_space(
    agent: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_: object, path: Path, *__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rlsdk_lab.video._write", half)
    (tmp_path / "videos").mkdir()
    with pytest.raises(ArtifactError, match="cannot be written: No space left on device"):
        record_video(rlsdk.load(agent), "CartPole-v1", tmp_path / "videos" / f"video{suffix}")
    assert not list((tmp_path / "videos").iterdir())


def test_an_executor_whose_function_fails() -> None:
    with pytest.raises(SettingsError, match="'os:getcwd' cannot be made for 2 workers: it raised TypeError"):
        make_executor("os:getcwd", 2)


def test_a_stopped_sweep_names_the_command_that_continues(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(plan: Any) -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlsdk_lab.seeds_command.sweep", stopped)
    code, _, err = cli("run", "ppo", "--env", "CartPole-v1", "--steps", "64", "--seeds", "2", "--out", "two")
    assert (code, "continue with: rlsdk run ppo --resume --out two" in err) == (130, True)


def test_without_the_package_of_several_seeds_one_line_names_it(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single run needs nothing of it, not even with the folder of an earlier run of one seed."""
    monkeypatch.setattr("rlsdk.runtime.lazy.find_spec", lambda name: None)
    small = ("--env", "CartPole-v1", "--steps", "32", "--set", "n_steps=32", "--set", "batch_size=32")
    words = "`rlsdk run` with several seeds is in rlsdk-lab, which is not installed: pip install "
    Path("runs").mkdir()
    Path("runs/sweep.json").write_text("{}")
    for more in ((*small, "--seeds", "2", "--out", "two"), ("--resume", "--out", "runs")):
        code, out, err = cli("run", "ppo", *more)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert err.startswith(f"error: {words}")
    assert not Path("two").exists()
    assert cli("run", "ppo", *small, "--out", "one")[0] == 0
    assert cli("run", "ppo", "--resume", "--steps", "64", "--out", "one")[0] == 0
