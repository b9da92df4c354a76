"""The commands of `rlsdk`, as a user types them."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk_lab.plotting import plot_run
from rlsdk_testing.subject import differing, flat_state

SMALL = ["--set", "policy_kwargs.net_arch=[8]", "--set", "buffer_size=2000", "--set", "batch_size=16"]


def train(cli: Any, *more: str, steps: int = 450, out: str = "run") -> tuple[int, str, str]:
    command = [
        "run",
        "tqc",
        "--env",
        "Pendulum-v1",
        "--steps",
        str(steps),
        "--seed",
        "3",
        "--eval-episodes",
        "1",
        "--out",
        out,
    ]
    return cli(*command, *SMALL, *more)


def run_from(cli: Any, file: str) -> tuple[int, str, str]:
    """Run TQC for a few steps with the settings in `file`, into the folder `run`: (exit code, output, errors)."""
    options = ["--env", "Pendulum-v1", "--steps", "210", "--eval-episodes", "1", "--eval-every", "0", "--out", "run"]
    result: tuple[int, str, str] = cli("run", "tqc", "--config", file, *options)
    return result


def test_list(cli: Any) -> None:
    code, out, _ = cli("list")
    assert code == 0
    assert "tqc" in out
    code, out, _ = cli("list", "--json")
    (entry,) = [p for p in json.loads(out) if p["id"] == "tqc"]
    assert entry["distribution"] == "rlsdk-tqc"
    assert entry["actions"] == ["Box"]
    assert entry["problem"] is None


@pytest.mark.full
@pytest.mark.parametrize(
    "command", [["list"], ["--help"], ["info", "tqc"], ["config", "tqc"], ["run", "--help"], ["doctor"]]
)
def test_looking_imports_no_torch(command: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['rlsdk', *{command!r}]\nfrom rlsdk.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "sys.stderr.write(str(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    allowed = "['numpy']" if command[0] in ("info", "config", "doctor") else "[]"
    assert done.stderr in ("[]", allowed)


def test_info_shows_every_parameter(cli: Any) -> None:
    code, out, _ = cli("info", "tqc")
    assert code == 0
    for word in (
        "arXiv:2005.04269",
        "learning_rate: Schedule, default 0.0003",
        "n_quantiles: int, default 25",
        "MultiInputPolicy",
    ):
        assert word in out


def test_config_can_be_run_as_it_is(cli: Any) -> None:
    code, out, _ = cli("config", "tqc", "--set", "buffer_size=1000", "--set", "policy_kwargs.net_arch=[8]")
    assert code == 0
    assert tomllib.loads(out)["buffer_size"] == 1000
    Path("run.toml").write_text(out)
    code, _, err = run_from(cli, "run.toml")
    assert code == 0, err
    assert tomllib.loads(Path("run/config.toml").read_text())["buffer_size"] == 1000


def test_presets_are_used_and_named(cli: Any) -> None:
    short = ("--steps", "300", "--eval-every", "0", "--eval-episodes", "1", "--set", "n_steps=32")
    code, out, err = cli("run", "trpo", "--env", "Pendulum-v1", *short, "--out", "tuned")
    assert code == 0, err
    assert "preset for Pendulum-v1: n_steps=1024, gamma=0.9" in out
    config = tomllib.loads(Path("tuned/config.toml").read_text())
    assert (config["n_steps"], config["gamma"], config["n_critic_updates"]) == (32, 0.9, 15)
    assert json.loads(Path("tuned/run.json").read_text())["n_envs"] == 2
    code, out, err = cli("run", "trpo", "--env", "Pendulum-v1", *short, "--no-preset", "--out", "plain")
    assert code == 0, err
    assert "preset" not in out
    assert tomllib.loads(Path("plain/config.toml").read_text())["gamma"] == 0.99
    code, out, err = cli("run", "trpo", "--config", "plain/config.toml", "--steps", "64", "--out", "again")
    assert code == 0, err
    assert tomllib.loads(Path("again/config.toml").read_text())["gamma"] == 0.99
    _, out, _ = cli("run", "trpo", "--env", "CartPole-v1", *short, "--out", "defaults")
    assert "preset for CartPole-v1: the defaults" in out
    assert "for the defaults" not in out
    assert "over 1 deterministic episode\n" in out


def test_presets_are_shown(cli: Any) -> None:
    _, out, _ = cli("info", "recurrent-ppo")
    assert "rlsdk/CartPoleNoVel-v1" in out
    code, out, _ = cli("config", "qrdqn", "--preset", "CartPole-v1", "--set", "tau=0.5")
    assert code == 0
    assert (tomllib.loads(out)["target_update_interval"], tomllib.loads(out)["tau"]) == (10, 0.5)
    code, _, err = cli("config", "qrdqn", "--preset", "CartPole-v0")
    assert code == 1
    assert "did you mean 'CartPole-v1'" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nsteps = 0", "positive whole number"),
        ("[run]\nsteps = 5\nspeed = 1", "unknown entries ['speed']"),
        ("gamma = 1", "two tables"),
        ("[run", "not valid TOML"),
    ],
)
def test_a_damaged_preset_is_one_clear_error(cli: Any, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    folder = Path("package/presets")
    folder.mkdir(parents=True)
    (folder / "Pendulum-v1.toml").write_text(text)
    monkeypatch.setattr("rlsdk.registry.discovery.package_folder", lambda module: Path("package").absolute())
    code, _, err = train(cli)
    assert code == 1
    assert words in err
    assert "Pendulum-v1" in err


def test_a_run_leaves_everything(cli: Any) -> None:
    code, out, err = train(cli, "--n-envs", "2", "--eval-every", "200")
    assert code == 0, err
    assert "return" in out
    assert "450/450 steps" in err
    run = Path("run")
    expected = {"config.toml", "run.json", "metrics.csv", "metrics.jsonl", "checkpoints", "best.rlsdk", "final.rlsdk"}
    assert expected <= {p.name for p in run.iterdir()}
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["env_steps"], record["seed"], record["n_envs"]) == ("finished", 450, 3, 2)
    assert record["system"]["torch"]
    config = tomllib.loads((run / "config.toml").read_text())
    assert (config["seed"], config["env"], config["policy_kwargs"]["net_arch"]) == (3, "Pendulum-v1", {"": [8]})
    steps = [int(row["step"]) for row in csv.DictReader((run / "metrics.csv").open()) if row["eval/mean_reward"]]
    assert steps == [200, 400]
    if plot_run(run, run / "again.png"):
        assert (run / "learning_curve.png").read_bytes()[:4] == b"\x89PNG"
    again = ["run", "tqc", "--config", "run/config.toml", "--steps", "450", "--n-envs", "2", "--eval-every", "200"]
    assert cli(*again, "--eval-episodes", "1", "--out", "repeat")[0] == 0
    one, two = (rlsdk.load(folder / "final") for folder in (run, Path("repeat")))
    assert differing(*(flat_state(a) for a in (one, two))) == []


def test_eval_and_inspect(cli: Any) -> None:
    train(cli, steps=210)
    code, out, _ = cli("eval", "run/final.rlsdk", "--episodes", "2")
    assert code == 0
    assert "Pendulum-v1: return -" in out
    code, out, _ = cli("eval", "run/final.rlsdk", "--episodes", "3", "--n-envs", "2", "--stochastic", "--json")
    context = json.loads(out)
    assert len(context["returns"]) == 3
    assert not context["deterministic"]
    code, out, _ = cli("inspect", "run/final.rlsdk")
    assert code == 0
    for word in ("tqc (rlsdk-tqc", "Pendulum-v1, 210 steps, seed 3", "section:      policy"):
        assert word in out
    code, out, _ = cli("inspect", "run/final.rlsdk", "--json")
    assert json.loads(out)["algorithm"] == "tqc"


def test_resume_goes_on_with_the_same_curve(cli: Any) -> None:
    assert train(cli, steps=400)[0] == 0
    code, out, err = cli("run", "tqc", "--resume", "--out", "run", "--steps", "800", "--eval-episodes", "1")
    assert code == 0, err
    assert "resuming tqc on Pendulum-v1 at step 400 of 800" in out
    with Path("run/metrics.csv").open() as stream:
        rows = [int(row["step"]) for row in csv.DictReader(stream)]
    assert rows == sorted(rows)
    assert rows[-1] == 800
    agent = rlsdk.load("run/checkpoints/step_000000800", env="Pendulum-v1")
    assert len(agent.replay_buffer) == 800
    assert cli("run", "tqc", "--resume", "--out", "run", "--eval-episodes", "1")[0] == 0  # nothing left to do


HUGE = str(10**23)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "tqcc", "--env", "Pendulum-v1", "--steps", "10"], "did you mean 'tqc'"),
        (["run", "tqc", "--steps", "10"], "add --env ID"),
        (["run", "tqc", "--env", "Pendulum-v1", "--no-preset"], "add --steps N"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "-3"], "whole number of at least 0"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "1.5"], "whole number of at least 0"),
        (["run", "tqc", "--env", "Pendulum-v1", "--checkpoint-every", "0"], "positive whole number"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "1e30"], "up to 2**53, such as 100000 or 1e5"),
        *(
            ([*command, option, HUGE], words)
            for command, option, words in (
                (["tune", "ars", "--env", "CartPole-v1", "--steps", "20"], "--trials", "equal to 1000000"),
                (["tune", "ars", "--env", "CartPole-v1", "--steps", "20"], "--eval-episodes", "equal to 10000000"),
                (["tune", "ars", "--env", "CartPole-v1", "--steps", "20"], "--n-envs", "equal to 65536"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--n-envs", "equal to 65536"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--seeds", "whole number, up to 10000"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--threads", "equal to 4096"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--eval-episodes", "equal to 10000000"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--collectors", "equal to 65536"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--max-lag", "equal to 1000000"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--max-restores", "equal to 1000000"),
                (["run", "ars", "--env", "CartPole-v1", "--steps", "20"], "--checkpoint-every", "up to 2**53"),
                (["bench", "classic", "--algos", "ars"], "--seeds", "whole number, up to 10000"),
                (["eval", "agent"], "--episodes", "equal to 10000000"),
                (["eval", "agent"], "--n-envs", "equal to 65536"),
                (["record", "agent"], "--episodes", "equal to 10000000"),
                (["record-episodes", "agent"], "--episodes", "equal to 10000000"),
                (["record-episodes", "agent"], "--n-envs", "equal to 65536"),
                (["plot", "run"], "--smooth", "equal to 10000000"),
            )
        ),
        (["run", "tqc", "--env", "Pendulum-v1", "--eval-every", "-1"], "whole number of at least 0"),
        (["run", "tqc", "--env", "Pendulun-v1", "--steps", "10"], "did you mean 'Pendulum-v1'"),
        (["run", "tqc", "--env", "CartPole-v1", "--steps", "10"], "Discrete action space"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--set", "gama=1"], "did you mean 'gamma'"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--set", "gamma"], "NAME=VALUE"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--config", "no.toml"], "cannot be read"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--n-envs", "0"], "n_envs = 0"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--device", "tpu"], "cannot be used here"),
        (["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--out", "/proc/run"], "cannot write"),
        (
            ["run", "tqc", "--env", "Pendulum-v1", "--steps", "10", "--set", "buffer_size=1_000_000_000_000"],
            "lower buffer_size",
        ),
        (["run", "ppo", "--env", "CartPole-v1", "--preset", "CartPole-v2"], "did you mean 'CartPole-v1'?"),
        (["run", "ppo", "--env", "CartPole-v1", "--preset", "CartPole-v1", "--no-preset"], "give one of them"),
        (["run", "ppo", "--resume", "--out", "nowhere", "--preset", "CartPole-v1"], "give one of them"),
        (["run", "tqc", "--resume"], "needs --out"),
        (["run", "tqc", "--resume", "--out", "nowhere"], "holds no run"),
        (["run", "tqc", "--resume", "--out", "nowhere", "--n-envs", "2"], "leave out"),
        (["run", "tqc", "--resume", "--out", "nowhere", "--env", "Pendulum-v1"], "holds no run"),
        (["run", "tqc", "--stepps", "3"], "No such option"),
        (["eval", "nothing.rlsdk"], "there is no file"),
        (["inspect", "nothing.rlsdk"], "there is no file"),
        (["info", "acme-sac"], "no installed plugin offers 'acme-sac'"),
        (["config", "tqc", "--set", "tau=2"], "outside [0, 1]"),
        (["check", "nope"], "no installed plugin"),
        (["lisst"], "No such command"),
    ],
)
def test_bad_input_is_one_clear_error(cli: Any, arguments: list[str], words: str) -> None:
    code, _, err = cli(*arguments)
    assert code != 0
    assert words.lower() in err.lower()
    assert "Traceback" not in err
    assert not any(Path().glob("runs/*/*/final.rlsdk"))


def test_a_damaged_file_is_one_clear_error(cli: Any) -> None:
    Path("bad.rlsdk").write_bytes(b"PK\x03\x04 nonsense")
    for command in ("eval", "inspect"):
        code, _, err = cli(command, "bad.rlsdk")
        assert code == 1
        assert "not a whole rlsdk-agent file" in err


def test_a_run_is_not_overwritten(cli: Any) -> None:
    assert train(cli, steps=210)[0] == 0
    before = Path("run/final.rlsdk").read_bytes()
    code, _, err = train(cli, steps=210)
    assert code == 1
    assert "already holds a run" in err
    assert Path("run/final.rlsdk").read_bytes() == before


def test_a_file_cannot_choose_what_is_imported(cli: Any, tmp_path: Path) -> None:
    train(cli, steps=210)
    agent = rlsdk.load("run/final")
    agent.env_name = "evil_module:Pendulum-v1"
    agent.save("evil")
    code, _, err = cli("eval", "evil.rlsdk")
    assert code == 1
    assert "pass it with --env" in err


@pytest.mark.slow
def test_check(cli: Any) -> None:
    code, out, err = cli("check", "tqc", "--json")
    assert code == 0, out
    statuses = [entry["status"] for entry in json.loads(out)]
    assert set(statuses) <= {"passed", "not applicable"}
    passed, absent = statuses.count("passed"), statuses.count("not applicable")
    assert err == f"{passed} hold, {absent} do not apply\n"
    assert "the algorithm uses no masks" in out


@pytest.mark.full
def test_a_terminal_gets_a_live_bar(tmp_path: Path) -> None:
    """Under a pseudo-terminal the bar shows return, speed and time left."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "rlsdk.cli.main", "run", "tqc", "--env", "Pendulum-v1", "--steps", "700", *SMALL]
    options = ["--out", str(tmp_path / "run"), "--eval-every", "0", "--eval-episodes", "1"]
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=terminal, env=environment, close_fds=True
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert process.wait(60) == 0
    text = shown.decode(errors="replace")
    assert "700/700" in text
    assert "steps/s" in text
    assert "return" in text


@pytest.mark.full
def test_doctor(cli: Any) -> None:
    code, out, _ = cli("doctor")
    assert code == 0
    assert "plugin rlsdk-tqc/tqc" in out
    assert "usable" in out


def test_a_profile_is_printed(cli: Any, tmp_path: Path) -> None:
    command = ["run", "trpo", "--env", "CartPole-v1", "--steps", "200", "--no-preset", "--set", "n_steps=64"]
    code, out, _ = cli(*command, "--profile", "--eval-episodes", "1", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "where the time went, trpo on CartPole-v1" in out
    assert "advice: " in out


def test_a_preset_is_used_in_another_environment(cli: Any, tmp_path: Path) -> None:
    command = ["run", "ppo", "--env", "Acrobot-v1", "--preset", "CartPole-v1", "--steps", "300"]
    code, out, _ = cli(*command, "--eval-every", "0", "--eval-episodes", "1", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "preset for CartPole-v1: n_steps=32" in out
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (settings["n_steps"], settings["env"]) == (32, "Acrobot-v1")
    assert "--n-envs 8" in (tmp_path / "run" / "config.toml").read_text()
