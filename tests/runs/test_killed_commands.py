"""Commands that are killed at random moments, one kill after another in the same folder: nothing earlier is lost.

After each kill all agent files are whole, the newest checkpoint is not older than before, finished work stays finished, and the
same command can continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rlsdk
from rlsdk.runs.directory import RunDirectory
from rlsdk_datasets import open_episodes

KILLS = 12
"""Kills of each command in the slow test."""
LAST_SECONDS = 60.0
"""The time in which workers end after their parent was killed."""
SUITE = """
[suite]
episodes = 1
[[cells]]
algorithm = "dqn"
env = "CartPole-v1"
steps = 600
[cells.settings]
learning_starts = 20
"""
DQN = ["--set", "learning_starts=50", "--set", "policy_kwargs.net_arch=[4]"]
ARS = ["--set", "n_delta=2"]
RUN = ["run", "dqn", "--env", "CartPole-v1", "--eval-every", "200", "--eval-episodes", "1", "--out", "work"]
COMMANDS = {
    "run": [*RUN, "--steps", "1000000", "--checkpoint-every", "150", "--seed", "0", *DQN],
    "seeds": [*RUN, "--steps", "1000000", "--checkpoint-every", "150", "--seeds", "2", "--jobs", "1", *DQN],
    "bench": ["bench", "mine.toml", "--seeds", "3", "--out", "work"],
    "tune": [
        *("tune", "ars", "--env", "CartPole-v1", "--steps", "100", "--trials", "1000", "--out", "work"),
        *("--eval-episodes", "1", *ARS),
    ],
    "record-episodes": [
        *(
            "record-episodes",
            "--random",
            "--env",
            "CartPole-v1",
            "--episodes",
            "200",
            "--out",
            "work/demo",
            "--overwrite",
        )
    ],
}
RESUMED = {"run": ["run", "dqn", "--resume", "--out", "work"], "seeds": ["run", "dqn", "--resume", "--out", "work"]}


def agents_in(folder: Path) -> dict[str, int]:
    """Name of each agent file -> its steps; raises an error if one is not whole."""
    return {
        str(path): rlsdk.load(path).num_timesteps for path in folder.rglob("*.rlsdk") if path.parent.name != "replay"
    }


def of_run(folder: Path) -> dict[str, float]:
    """What may only grow: the newest checkpoint of each run that has one."""
    agents = agents_in(folder)
    found: dict[str, float] = {}
    for record in folder.rglob("run.json"):
        RunDirectory(record.parent).read_record()
        steps = [step for path, step in agents.items() if Path(path).parent == record.parent / "checkpoints"]
        found[str(record)] = max(steps, default=0)
    return found


def of_bench(folder: Path) -> dict[str, float]:
    agents_in(folder)
    done = [RunDirectory(record.parent).read_record() for record in folder.rglob("run.json")]
    if (folder / "bench.json").exists():
        json.loads((folder / "bench.json").read_text())
    return {"finished": sum(each.status == "finished" for each in done)}


def of_tune(folder: Path) -> dict[str, float]:
    lines = (folder / "journal.log").read_bytes().splitlines() if (folder / "journal.log").exists() else []
    return {"journal": sum(line.endswith(b"}") for line in lines)}


def of_record(folder: Path) -> dict[str, float]:
    path = folder / "demo.safetensors"
    return {"episodes": len(open_episodes(path)) if path.exists() else 0}


GROWING: dict[str, Callable[[Path], dict[str, float]]] = {
    "run": of_run, "seeds": of_run, "bench": of_bench, "tune": of_tune, "record-episodes": of_record,
}  # fmt: skip


def killed(words: list[str], folder: Path, seconds: float) -> int | None:
    """Run a command, and kill it with all its processes after some time. Return its exit code if it ended earlier."""
    command = [sys.executable, "-m", "rlsdk", *words]
    with open(folder / "errors.txt", "w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=errors, stderr=errors, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            left = descendants(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # workers are outside the group: they save and end some seconds after their parent
            limit = time.monotonic() + LAST_SECONDS
            while any(Path(f"/proc/{pid}").exists() for pid in left):
                assert time.monotonic() < limit, f"processes {left} outlive the command by {LAST_SECONDS} s"
                time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, those that these started, and so on."""
    found = list[int]()
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [each for child in listed.read_text().split() for each in (int(child), *descendants(int(child)))]
    return found


def attack(name: str, folder: Path, kills: int, seed: int) -> None:
    draw, work, before = random.Random(f"{name} {seed}"), folder / "work", dict[str, float]()
    (folder / "mine.toml").write_text(SUITE)
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import rlsdk.runs.runner"], check=True)
    start = time.monotonic() - began
    for kill in range(kills):
        resumed = name in RESUMED and any(before.values())
        if name in RESUMED and not resumed:
            subprocess.run(["rm", "-rf", str(work)], check=True)  # killed before the first checkpoint
            before = {}
        code = killed(RESUMED[name] if resumed else COMMANDS[name], folder, start * (1.0 + draw.random() * 4.0))
        message = (folder / "errors.txt").read_text()
        assert "Traceback" not in message, message
        assert code in (None, 0), (kill, message)
        after = GROWING[name](work)
        lost = {key: (value, after.get(key)) for key, value in before.items() if after.get(key, -1.0) < value}
        assert not lost, (kill, lost)
        before = after
    assert any(before.values()), "killed before anything was written"


@pytest.mark.full
@pytest.mark.parametrize("name", ["run", "tune"])
def test_what_is_killed_loses_nothing(name: str, tmp_path: Path) -> None:
    attack(name, tmp_path, 2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_many_kills_lose_nothing(name: str, tmp_path: Path) -> None:
    attack(name, tmp_path, KILLS, seed=1)
