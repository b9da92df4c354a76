"""Environments of the user: named by module, class or file, on every command and in every worker, and without --trust."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk.runs.directory import KEY, RunDirectory, folder_name, record_made_here, state_folder
from rlsdk.runtime.packages import named_module
from rlsdk.settings.load import wrapper_call

MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Reach(CartPoleEnv):
    def __init__(self, bonus=0.0, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.bonus = bonus

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + self.bonus, *rest


class Twice(gymnasium.RewardWrapper):
    def __init__(self, env, by=2):
        super().__init__(env)
        self.by = by

    def reward(self, reward):
        return self.by * reward


gymnasium.register("Reach-v0", Reach, max_episode_steps=9)
number = 1
"""
SHORT = ("--steps", "64", "--n-envs", "1", "--set", "n_steps=32", "--eval-episodes", "1", "--eval-every", "32")
RUN = ("run", "ppo", "--env", "my_robot:Reach-v0", *SHORT)


@pytest.fixture
def robot(cli: Any, tmp_path: Path) -> Iterator[Any]:
    """The command `rlsdk` in a folder with the module `my_robot`, which is not in `sys.path`."""
    (tmp_path / "my_robot.py").write_text(MODULE)
    path, modules = list(sys.path), set(sys.modules)
    yield cli
    sys.path[:] = path
    for name in {"my_robot"} - modules:
        sys.modules.pop(name, None)
    gymnasium.registry.pop("Reach-v0", None)


def reward_of(env: str) -> float:
    envs = make_vec_env(env)
    envs.reset(0)
    with contextlib.closing(envs):
        return float(envs.step(torch.zeros(1, dtype=torch.int64)).reward[0])


def passed(result: tuple[int, str, str]) -> str:
    assert result[0] == 0, result[2]
    return result[1]


@pytest.mark.parametrize("name", ["my_robot:Reach-v0", "my_robot:Reach", "./my_robot.py:Reach", "my_robot.py:Reach-v0"])
def test_names_of_an_own_environment(robot: Any, name: str) -> None:
    assert reward_of(f"{name}?bonus=2.0") == 3.0
    assert reward_of(f"{name}?wrapper=my_robot:Twice(by=5)&wrapper={name.rpartition(':')[0]}:Twice") == 10.0
    envs = make_vec_env(f"{name}?max_episode_steps=3")
    envs.reset(0)
    ends = [bool(envs.step(torch.zeros(1, dtype=torch.int64)).truncated[0]) for _ in range(3)]
    assert ends == [False, False, True]


@pytest.mark.full
def test_an_own_run_needs_no_trust(robot: Any, tmp_path: Path) -> None:
    """One's own run is evaluated, recorded, resumed, plotted and repeated; a copy and altered files are refused."""
    passed(robot(*RUN, "--out", "run"))
    for command in (
        ("eval", "run", "--episodes", "1"),
        ("eval", "run/checkpoints/step_000000064.rlsdk", "--episodes", "2", "--jobs", "2"),
        ("record", "run", "-o", "a.gif"),
        ("record-episodes", "run", "--episodes", "1"),
        ("run", "ppo", "--resume", "--out", "run", "--steps", "96"),
        ("plot", "run"),
        ("run", "ppo", "--config", "run/config.toml", "--steps", "32", "--eval-every", "0", "--out", "again"),
    ):
        passed(robot(*command))
    shutil.copytree("run", "copied")
    agent = RunDirectory(Path("copied")).best
    for command in (
        ("eval", "copied"),
        ("record", "copied"),
        ("record-episodes", "copied", "-o", "second"),
        ("eval", str(shutil.copy(agent, "alone.rlsdk"))),
        ("run", "ppo", "--resume", "--out", "copied"),
        ("run", "ppo", "--config", "copied/config.toml", "--steps", "32"),
    ):
        code, _, err = robot(*command)
        assert (code, "names the environment 'my_robot:Reach-v0'" in err, "--trust" in err) == (1, True, True), err
    passed(robot("run", "ppo", "--resume", "--out", "copied", "--steps", "128", "--trust"))
    passed(robot("run", "ppo", "--resume", "--out", "copied", "--steps", "160"))  # trusted once, and written here since


def test_what_is_not_made_here(robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed(robot(*RUN, "--out", "run"))
    record = Path("run/run.json")
    written = record.read_text()
    assert record_made_here(record) is not None
    for entries in (
        {"env": "my_robot:Other-v0"},
        {"places": {"tensorboard_log": "/tmp"}},
        {"made_here": 1},
        {"made_here": "\ud800"},
    ):
        record.write_text(json.dumps({**json.loads(written), **entries}))
        assert record_made_here(record) is None
        assert robot("eval", "run")[0] == 1
        assert robot("run", "ppo", "--resume", "--out", "run")[0] == 1
    record.write_text(written)
    passed(
        robot("run", "ppo", "--env", "my_robot:Reach", "--env-kwargs", "max_episode_steps=9", *SHORT, "--out", "other")
    )
    shutil.copy("other/best.rlsdk", "run/best.rlsdk")  # an agent file that names another module or class
    code, _, err = robot("eval", "run")
    assert (code, "my_robot:Reach?max_episode_steps=9" in err) == (1, True)

    Path("linked").mkdir()
    Path("linked/run.json").symlink_to(record.resolve())
    assert (record_made_here(record) is None, record_made_here(Path("linked/run.json"))) == (False, None)
    Path("way").symlink_to(Path("run").resolve())
    assert record_made_here(Path("way/run.json")) is not None  # another path to the same folder

    shutil.rmtree("run")  # someone else's folder is unpacked where the run was
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        passed(robot(*RUN, "--out", "run"))
    assert (robot("eval", "run")[0], robot("run", "ppo", "--resume", "--out", "run")[0]) == (1, 1)


def test_the_key_is_private(robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    passed(robot(*RUN, "--out", "run"))
    key = state_folder() / KEY
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    assert not [path for path in Path("run").rglob("*") if path.is_file() and key.read_bytes() in path.read_bytes()]
    for spoil in (lambda: key.chmod(0o644), lambda: (key.chmod(0o600), key.write_bytes(b"x"))):
        spoil()
        assert record_made_here(Path("run/run.json")) is None
    key.unlink()
    key.mkdir()  # there is no place for a key: the run works, and is trusted by an option
    assert "needs_trust" not in passed(robot(*RUN, "--out", "second"))
    assert "made_here" not in json.loads(Path("second/run.json").read_text())
    assert robot("eval", "second", "--episodes", "1")[0] == 1
    passed(robot("eval", "second", "--episodes", "1", "--trust"))


def test_a_plain_run_writes_no_key(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    passed(cli("run", "ppo", "--env", "CartPole-v1", *SHORT, "--out", "run"))
    assert not (tmp_path / "state").exists()


@pytest.mark.full
def test_sweeps_and_collectors_find_the_module(robot: Any) -> None:
    passed(robot(*RUN, "--seeds", "2", "--jobs", "2", "--out", "seeds"))
    passed(robot("run", "ppo", "--resume", "--out", "seeds", "--steps", "96"))
    passed(robot("eval", "seeds/seed-0", "--episodes", "1"))
    shutil.copytree("seeds", "copied")
    code, _, err = robot("run", "ppo", "--resume", "--out", "copied", "--steps", "128")
    assert (code, "copied/sweep.json names the environment" in err) == (1, True), err
    file = ("run", "ppo", "--env", "./my_robot.py:Reach", "--env-kwargs", "max_episode_steps=9", "--steps", "64")
    workers = ("--n-envs", "2", "--set", "n_steps=16", "--eval-episodes", "1", "--no-preset")
    passed(robot(*file, *workers, "--collectors", "2", "--out", "collected"))
    passed(robot(*file, *workers, "--vectorization", "async", "--out", "processes"))


@pytest.mark.full
def test_benchmarks_and_searches_find_the_module(robot: Any) -> None:
    pytest.importorskip("optuna")
    Path("own.toml").write_text('[[cells]]\nalgorithm = "ars"\nenv = "my_robot:Reach-v0"\nsteps = 32\n')
    passed(robot("bench", "own.toml", "--seeds", "2", "--jobs", "2", "--trust"))
    tune = ("--steps", "32", "--trials", "2", "--jobs", "2", "--eval-episodes", "1", "--out", "search", "--n-envs", "1")
    passed(robot("tune", "ars", "--env", "my_robot:Reach-v0", *tune))


@pytest.mark.full
def test_the_command_finds_modules_of_its_folder(tmp_path: Path) -> None:
    """The installed command itself, whose `sys.path` begins with another folder; a module there is preferred."""
    (tmp_path / "my_robot.py").write_text(MODULE)
    (tmp_path / "torch.py").write_text("raise SystemExit('a file of the working directory was imported')\n")
    command = [str(Path(sys.executable).with_name("rlsdk")), *RUN, "--out", "run"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    elsewhere = subprocess.run(
        [command[0], "eval", str(tmp_path / "run")],
        cwd=tmp_path / "run",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (elsewhere.returncode, "run the command in the folder of the module" in elsewhere.stderr) == (1, True)


def test_a_file_is_found_from_another_folder(robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--env-kwargs", "max_episode_steps=9", "--wrapper", "./my_robot.py:Twice(by=3)", *SHORT)
    passed(robot("run", "ppo", "--env", "./my_robot.py:Reach", *arguments))
    (folder,) = Path("runs/ppo").iterdir()
    assert folder.name.startswith("my_robot.py-Reach-max")
    full = folder.resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = json.loads(passed(robot("eval", str(full), "--episodes", "1", "--json")))
    assert (
        found["env"] == f"{tmp_path}/my_robot.py:Reach?max_episode_steps=9&wrapper={tmp_path}/my_robot.py:Twice(by=3)"
    )
    assert found["mean"] % 3 == 0
    assert folder_name("rlsdk/IdentityEnv-v0?a=x/y.py:z") == "rlsdk-IdentityEnv-v0-a-x-y.py-z"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_robt:Reach-v0", "run the command in the folder of the module"),
        ("my_robot:Rech-v0", "there is no environment 'my_robot:Rech-v0'"),
        ("my_robot:number", "there is no environment 'my_robot:number'"),
        ("./my_robt.py:Reach", "there is no file .*my_robt.py'; give the path"),
        ("./json.py:Reach", "'json' is also the name of another module; rename the file"),
        ("./my-robot.py:Reach", "'my-robot' is not a name of a module; rename the file"),
        ("my_robot:Reach?speed=1", "unexpected keyword argument 'speed'"),
    ],
)
def test_names_that_are_wrong(robot: Any, name: str, words: str) -> None:
    for file in ("json.py", "my-robot.py"):
        shutil.copy("my_robot.py", file)
    with pytest.raises((EnvironmentFault, SettingsError), match=words) as caught:
        make_vec_env(name)
    assert "\n" not in str(caught.value)


def test_installed_modules_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the name of an installed package does not take its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wheel_of_nothing").mkdir()
    (tmp_path / "colorsys").mkdir()
    sys.modules.pop("colorsys", None)
    assert named_module("colorsys").__file__ is not None
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("TimeFeature", ("TimeFeature", {})),
        ("m:Twice(by=5)", ("m:Twice", {"by": 5})),
        ("m:T()", ("m:T", {})),
        (
            "m:T(a='x:y', b=[1, 2.5], c=none, d=true, e=None, f=-1)",
            ("m:T", {"a": "x:y", "b": [1, 2.5], "c": None, "d": True, "e": None, "f": -1}),
        ),
    ],
)
def test_arguments_of_wrappers_are_literals(text: str, meant: object) -> None:
    assert wrapper_call(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "m:T(",
        "m:T(5)",
        "m:T(by=open)",
        "m:T(by=open('x'))",
        "m:T(by=1)(2)",
        "m:T(**{'by': 1})",
        "m:T(by=1, by=2)",
        "m:T(by=1) + 1",
        f"m:T(by={'(' * 5000})",
    ],
)
def test_other_arguments_of_wrappers_are_refused(cli: Any, text: str) -> None:
    with pytest.raises(SettingsError, match="is neither NAME nor NAME"):
        make_vec_env("CartPole-v1", wrappers=[text])
    code, _, err = cli("run", "ppo", "--env", "CartPole-v1", "--wrapper", text, *SHORT)
    assert (code, "is neither NAME nor NAME" in err, len(err.splitlines())) == (1, True, 1)


def test_a_wrapper_that_fails_is_named(robot: Any) -> None:
    with pytest.raises(
        EnvironmentFault, match=r"wrapper Twice raised TypeError.*'speed'.*as in Twice\(ARGUMENT=VALUE\)"
    ):
        make_vec_env("CartPole-v1", wrappers=["my_robot:Twice(speed=5)"])
