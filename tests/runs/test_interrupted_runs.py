"""Runs that are killed, stopped or fail, and the files that they leave."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import cast

import attrs
import gymnasium
import pytest

import rlsdk
from rlsdk.callbacks.periodic import StopOnInterrupt
from rlsdk.runs.directory import RunDirectory
from rlsdk.runs.runner import run
from rlsdk.training.run import Run
from rlsdk_envs.toy import IdentityEnv
from tests.cli.test_cli import SMALL
from tests.runs.test_resumed_options import BASE


@pytest.mark.full
def test_resume_after_a_hard_kill(tmp_path: Path) -> None:
    """After a kill, metrics since the last checkpoint are logged again, and the best agent stays the best."""
    process = start(tmp_path, checkpoint_every=200, eval_every=100)
    wait_for(tmp_path / "run" / "checkpoints" / "step_000000600.rlsdk")
    time.sleep(0.3)
    process.kill()
    process.communicate()
    run = tmp_path / "run"
    with (run / "metrics.csv").open() as stream:
        before = {
            row["step"]: float(row["eval/mean_reward"]) for row in csv.DictReader(stream) if row["eval/mean_reward"]
        }
    best = (run / "best.rlsdk").read_bytes()
    (checkpoint,) = sorted((run / "checkpoints").glob("*.rlsdk"))[-1:]
    steps = int(checkpoint.stem.partition("_")[2]) + 250
    command = ["run", "tqc", "--resume", "--out", str(run), "--steps", str(steps), "--eval-episodes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk.cli.main", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with (run / "metrics.csv").open() as stream:
        rows = [(int(row["step"]), row["eval/mean_reward"]) for row in csv.DictReader(stream)]
    assert [step for step, _ in rows] == sorted(step for step, _ in rows)
    lines = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines == [step for step, _ in rows]
    new = [float(value) for step, value in rows if value and str(step) not in before]
    best_score = max(v for s, v in before.items() if int(s) <= int(checkpoint.stem[5:]))
    if new and max(new) <= best_score == max(before.values()):  # no better one was found, before the kill or after it
        assert (run / "best.rlsdk").read_bytes() == best


def heed_signals() -> None:
    """Restore the default handlers: under a background shell or nohup, tests and their child processes ignore these signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(
    tmp_path: Path, *more: str, eval_episodes: int = 1, checkpoint_every: int = 20_000, eval_every: int = 0
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlsdk.cli.main", "run", "tqc", "--env", "Pendulum-v1", "--steps", "100000"]
    options = ["--out", str(tmp_path / "run"), "--eval-every", str(eval_every), "--eval-episodes", str(eval_episodes)]
    options += ["--checkpoint-every", str(checkpoint_every), *SMALL, *more]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *options], stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_signals)  # noqa: PLW1509  # no threads here


def wait_for(path: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.05)


@pytest.mark.full
def test_a_quiet_run_says_how_to_go_on(tmp_path: Path) -> None:
    """The command that continues the run is printed on standard error; standard output is for the result alone."""
    process = start(tmp_path, "--json")
    wait_for(tmp_path / "run" / "run.json")
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "continue with: rlsdk run tqc --resume --out" in err


@pytest.mark.full
def test_ctrl_c_while_the_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    script = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]["rlsdk"]
    module, _, function = script.partition(":")
    for words in (["-m", "rlsdk"], ["-c", f"import sys; from {module} import {function}; sys.exit({function}())"]):
        done = subprocess.run(
            [sys.executable, *words, "list"],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


DROPPED = {
    "in an import": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
except BaseException:  # as C++ code of libraries does
    pass
""",
    "in a destructor": """
class Left:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

class Env(Env):
    def reset(self, **kwargs):
        if hasattr(self, "left"):
            del self.left
        elif not Env.begun:
            Env.begun, self.left = True, Left()
        return super().reset(**kwargs)
""",
}


@pytest.mark.full
@pytest.mark.parametrize("where", DROPPED)
def test_ctrl_c_is_not_lost_where_exceptions_are_dropped(where: str, tmp_path: Path) -> None:
    module = "import os, signal, time\nfrom rlsdk_envs.toy import IdentityEnv\nclass Env(IdentityEnv): begun = False\n"
    (tmp_path / "dropping.py").write_text(module + DROPPED[where])
    command = ["record-episodes", "--random", "--env", "./dropping.py:Env", "--episodes", "10000000"]
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk", *command],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60, preexec_fn=heed_signals,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not list(tmp_path.glob("demo*"))


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.slow) for other in (signal.SIGTERM, signal.SIGHUP))],
)
def test_ctrl_c_saves_and_the_run_can_be_resumed(tmp_path: Path, number: int) -> None:
    process = start(tmp_path)
    wait_for(tmp_path / "run" / "run.json")
    time.sleep(1.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "continue with: rlsdk run tqc --resume --out" in out
    assert "Traceback" not in err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "interrupted"
    stopped = record["env_steps"]
    rlsdk.load(tmp_path / "run" / "final")
    command = [
        "run",
        "tqc",
        "--resume",
        "--out",
        str(tmp_path / "run"),
        "--steps",
        str(stopped + 200),
        "--eval-episodes",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk.cli.main", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"at step {stopped:,} of" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("eval_every", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_a_signal_ends_an_evaluation(tmp_path: Path, number: int, eval_every: int) -> None:
    """It ends the final evaluation and one in the training, the agent is saved, and a resumed run is evaluated again."""
    folder, long = tmp_path / "run", "1000000"
    options = ["--steps", "200", "--eval-every", str(eval_every), "--eval-episodes", long]
    process = start(tmp_path, *options)
    wait_for(folder / ("run.json" if eval_every else "final.rlsdk"))
    time.sleep(3.0)
    process.send_signal(number)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 20, "a learning curve is drawn on a busy machine, but no evaluation is waited for"
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert "continue with: rlsdk run tqc --resume --out" in out
    record = RunDirectory(folder).read_record()
    assert (record.status, record.final_evaluation) == ("interrupted", None)
    assert rlsdk.load(folder / "final").num_timesteps == record.env_steps == (100 if eval_every else 200)
    command = [
        sys.executable,
        "-m",
        "rlsdk.cli.main",
        "run",
        "tqc",
        "--resume",
        "--out",
        str(folder),
        "--eval-episodes",
        "2",
    ]
    subprocess.run(command, capture_output=True, check=True)
    record = RunDirectory(folder).read_record()
    assert (record.status, record.env_steps) == ("finished", 200)
    assert record.final_evaluation is not None
    assert record.final_evaluation.episodes == 2


@pytest.mark.full
def test_an_interrupted_training_is_not_evaluated(tmp_path: Path) -> None:
    """The first signal saves and stops; there is no wait for a long final evaluation."""
    process = start(tmp_path, eval_episodes=1_000_000)
    wait_for(tmp_path / "run" / "run.json")
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)  # the evaluation would take far longer
    assert process.returncode == 130
    assert RunDirectory(tmp_path / "run").read_record().status == "interrupted"
    rlsdk.load(tmp_path / "run" / "final")


def test_a_second_ctrl_c_stops_at_once() -> None:
    """The handlers of before act again after the first signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stop = StopOnInterrupt()
        stop.on_training_start(cast("Run", None))
        signal.raise_signal(signal.SIGINT)
        assert stop.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.full
def test_an_environment_that_breaks_in_mid_run_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(
        "import gymnasium\n"
        "from rlsdk_envs.toy import IdentityEnvBox\n"
        "class Breaking(IdentityEnvBox):\n"
        "    total = 0\n"
        "    def step(self, action):\n"
        "        Breaking.total += 1\n"
        "        if Breaking.total == 150: raise RuntimeError('lost contact')\n"
        "        return super().step(action)\n"
        "gymnasium.register('Breaking-v0', Breaking)\n"
    )
    command = [
        "run",
        "tqc",
        "--env",
        "breaking:Breaking-v0",
        "--steps",
        "400",
        "--eval-every",
        "0",
        *SMALL,
        "--out",
        "run",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk.cli.main", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "lost contact" in done.stderr
    assert "Traceback" not in done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["status"], record["env_steps"]) == ("failed", 149)
    agent = rlsdk.load(tmp_path / "run" / "checkpoints" / "step_000000149")
    assert agent.num_timesteps == 149


class NotClosing(IdentityEnv):
    def close(self) -> None:
        raise OSError("the simulator is gone")


def test_an_environment_that_cannot_be_closed_costs_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gymnasium.register("NotClosing-v0", NotClosing)
    try:
        result = run(attrs.evolve(BASE, env="NotClosing-v0", out=tmp_path / "run"))
    finally:
        del gymnasium.registry["NotClosing-v0"]
    assert RunDirectory(tmp_path / "run").read_record().status == "finished"
    assert rlsdk.load(tmp_path / "run" / "final").num_timesteps == result.env_steps == 48
    printed = capsys.readouterr().out
    assert printed.count("the simulator is gone") == 3, "of training, and of both kinds of evaluation"
    assert "warning: closing the training environment failed: EnvironmentFault: environment" in printed


@pytest.mark.full
def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    options = f"--env Pendulum-v1 --steps 900 --eval-every 0 {' '.join(SMALL)} --out {tmp_path / 'run'}"
    limited = f"ulimit -f 20; exec {sys.executable} -m rlsdk.cli.main run tqc {options}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "config.toml").exists()
    assert not list((tmp_path / "run").glob("**/*.part"))


STOPPED = """
import time
import gymnasium
from rlsdk.environments import make_vec_env
from rlsdk_envs.toy import ChainEnv
from rlsdk_{plugin} import {agent}


class Slow(gymnasium.Wrapper):
    def step(self, action):
        time.sleep(0.1)
        return super().step(action)


env = make_vec_env(lambda: Slow(ChainEnv(5)), 2, vectorization="async", workers=2, timeout=1.0)
agent = {agent}("MlpPolicy", env, seed=0, {settings})
print("begins", flush=True)
agent.learn(60)
print("ends", env.restarts, flush=True)
env.close()
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("plugin", "agent", "settings"),
    [("tqc", "TQC", "learning_starts=1000"), pytest.param("ars", "ARS", "n_delta=2", marks=pytest.mark.slow)],
)
def test_being_stopped_is_no_hang(plugin: str, agent: str, settings: str) -> None:
    """Ctrl-Z stops all processes for longer than the time limit of an answer; after `fg` the training continues."""
    program = STOPPED.format(plugin=plugin, agent=agent, settings=settings)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.killpg(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "ends 0\n"), err
