"""Whether rlsdk and its peers learn equally well: the training return over many seeds, with the same settings.

python -m benchmarks.equal_learning [TASK ...] [--seeds 10] [--jobs 2] [--minutes 30]    # trains what is missing
python -m benchmarks.equal_learning [TASK ...] --coupled    # trains rlsdk with the random numbers of the peer's runs
python -m benchmarks.equal_learning --page                  # writes docs/equal-learning.md and its picture

TASK is an algorithm, an environment, or both as `ppo/CartPole-v1`. benchmarks/equal_learning.toml lists the tasks. Both sides
train alternately, seed after seed, with one thread. Each result is stored as soon as its training ends, so that the command
continues where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.arguments import positive, share
from benchmarks.equal_run import POINTS, train

ROOT = Path(__file__).parents[1]
TASKS = Path(__file__).with_suffix(".toml")
DATA = ROOT / "docs" / "equal-learning.jsonl"
SIDES = ("ours", "peer")
COUPLED = "coupled"
"""The side of rlsdk with the random numbers of the peer, see `benchmarks.equal_numbers`."""
PACKAGES = ("gymnasium", "rlsdk", "stable-baselines3", "sb3-contrib", "torch")
Curves = dict[str, dict[str, dict[int, list[float]]]]
"""Task -> side -> run -> the points of its curve."""
Job = tuple["Task", int, str]
"""A training: the task, the number of the run, and the side."""


@dataclass(frozen=True)
class Task:
    """One algorithm on one environment, with the settings of both sides."""

    name: str
    peer: str
    """The class of the peer with its library."""
    steps: int
    seeds: int
    """The planned number of runs of each side."""
    range: tuple[float, float]
    """The return of a random policy, and of a good one at this number of steps."""
    margin: float
    """The largest difference that counts as equal, as a share of the range."""
    n_envs: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """The id of the plugin."""
        return self.name.partition("/")[0]

    @property
    def env(self) -> str:
        """The id of the environment."""
        return self.name.partition("/")[2]

    @property
    def allowed(self) -> float:
        """The margin as a difference of returns."""
        return self.margin * (self.range[1] - self.range[0])

    def spec(self) -> dict[str, Any]:
        """What determines a training, except for side and seed."""
        shared = {"algorithm": self.algorithm, "peer": self.peer, "env": self.env}
        return {**shared, "n_envs": self.n_envs, "steps": self.steps, "settings": self.settings}

    def digest(self) -> str:
        """A short name of the settings. Results with other settings do not count."""
        text = json.dumps([self.spec(), POINTS], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def tasks() -> dict[str, Task]:
    """All tasks, in the order of the file."""
    known = tomllib.loads(TASKS.read_text(encoding="utf-8"))
    return {name: Task(name, **{**own, "range": tuple(own["range"])}) for name, own in known.items()}


def stored(known: dict[str, Task]) -> Curves:
    """Read the curves of the known tasks with their current settings."""
    found: Curves = {name: {side: {} for side in (*SIDES, COUPLED)} for name in known}
    for row in rows():
        if row["task"] in known and row["settings"] == known[row["task"]].digest():
            found[row["task"]][row["side"]][row["run"]] = row["curve"]
    return found


def rows() -> list[dict[str, Any]]:
    """The stored results, one per training. A line that was not written completely is left out."""
    if not DATA.exists():
        return []
    lines = DATA.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def store(job: Job, outcome: dict[str, Any]) -> None:
    """Append the result of a training to the file."""
    task, run, side = job
    row = {"task": task.name, "settings": task.digest(), "side": side, "run": run, **outcome}
    row |= {"date": time.strftime("%Y-%m-%d"), "versions": versions()}
    text = DATA.read_text(encoding="utf-8") if DATA.exists() else ""
    with DATA.open("a", encoding="utf-8") as stream:
        # the line of an interrupted command has no end
        stream.write(f"{'' if text.endswith(chr(10)) or not text else chr(10)}{json.dumps(row)}\n")


def versions() -> str:
    """The versions of both sides."""
    return ", ".join(f"{package} {version(package)}" for package in PACKAGES)


def missing(chosen: list[Task], seeds: int | None, found: Curves, sides: tuple[str, str] = SIDES) -> Iterator[Job]:
    """The trainings that have no result yet: task after task, run after run, side after side.

    seeds: the number of runs of each side; None: the planned one of each task.
    """
    for task in chosen:
        for run in range(seeds or task.seeds):
            for side in sides if run % 2 == 0 else reversed(sides):
                if run not in found[task.name][side]:
                    yield task, run, side


def measure(todo: Iterator[Job], jobs: int, minutes: float = math.inf) -> None:
    """Train `jobs` agents at a time and store each result. No training begins after `minutes`."""
    end = time.monotonic() + 60 * minutes
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    context = multiprocessing.get_context("spawn")
    running: dict[Future[dict[str, Any]], Job] = {}
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=100) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end and (job := next(todo, None)):
                task, run, side = job
                running[pool.submit(train, task.spec(), side, run)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                outcome = future.result()
                store(job, outcome)
                print(job[0].name, *job[1:], f"{outcome['cpu']} s, ends at {outcome['curve'][-1]}", flush=True)


def main() -> None:
    """Parse the command line."""
    known = tasks()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_learning", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="algorithms, environments or ALGORITHM/ENV; all without")
    parser.add_argument("--seeds", type=positive, help="runs of each side; without, those planned in the file")
    parser.add_argument("--jobs", type=positive, default=1, help="processes, each with one thread")
    parser.add_argument("--minutes", type=share, default=math.inf, help="begin no training after this time")
    parser.add_argument("--coupled", action="store_true", help="the peer, and rlsdk with its random numbers")
    parser.add_argument("--page", action="store_true", help="only write the page and its picture")
    options = parser.parse_args()
    names = {word for task in known.values() for word in (task.name, task.algorithm, task.env)}
    if unknown := sorted(set(options.tasks) - names):
        parser.error(f"unknown tasks {unknown}; there are {', '.join(known)}")
    if options.page:
        from benchmarks.equal_page import write

        write()
        return
    asked = set(options.tasks)
    chosen = [task for task in known.values() if not asked or asked & {task.name, task.algorithm, task.env}]
    sides = SIDES
    if options.coupled:
        from benchmarks.equal_numbers import ALGORITHMS

        chosen, sides = [task for task in chosen if task.algorithm in ALGORITHMS], ("peer", COUPLED)
        if not chosen:
            parser.error(f"--coupled needs an algorithm with a replay buffer: {', '.join(ALGORITHMS)}")
    measure(missing(chosen, options.seeds, stored(known), sides), options.jobs, options.minutes)


if __name__ == "__main__":
    main()
