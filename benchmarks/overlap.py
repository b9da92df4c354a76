"""Learning and collecting at the same time on HalfCheetah: what `collectors` and `max_lag` gain over one core.

`python -m benchmarks.overlap sac` (or `tqc`, `ppo`) prints the tables of docs/collecting.md. All ways train one
chunk after another alternately, so that other programs disturb all of them alike. The table also has the processor time of the
learner and of the busiest collector. With one core for each, the wall-clock time would be the larger of the two.

Two cores that share caches can be slower than twice one core. The last line is the speed of two independent trainings
together, relative to one alone: no way of using two cores can gain more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import rlsdk
from benchmarks.arguments import positive
from benchmarks.trainers import Elsewhere, Trainer
from rlsdk.environments import make_vec_env
from rlsdk_parallel import CollectorsVectorEnv

ENV = "HalfCheetah-v5"
REPLAY = {"learning_starts": 200, "buffer_size": 100_000}
TOGETHER = {**REPLAY, "train_freq": 32, "gradient_steps": 32}
ROLLOUTS = {"normalize": True}
Way = tuple[str, int, dict[str, Any], dict[str, Any], int]
"""(name, number of environments, settings, arguments of `make_vec_env`, threads of the learner)."""
WAYS: dict[str, list[Way]] = {
    "replay": [
        ("one core, train_freq 1", 1, REPLAY, {"vectorization": "sync"}, 1),
        ("two threads, train_freq 1", 1, REPLAY, {"vectorization": "sync"}, 2),
        ("one core, train_freq 32", 1, TOGETHER, {"vectorization": "sync"}, 1),
        ("one collector, max_lag 1", 1, TOGETHER, {"collectors": 1, "max_lag": 1}, 1),
        ("one collector, max_lag 1, two threads", 1, TOGETHER, {"collectors": 1, "max_lag": 1}, 2),
    ],
    "rollouts": [
        ("one core", 8, ROLLOUTS, {"vectorization": "sync"}, 1),
        ("one collector, max_lag 1", 8, ROLLOUTS, {"collectors": 1, "max_lag": 1}, 1),
        ("two collectors", 8, ROLLOUTS, {"collectors": 2}, 1),
        ("two collectors, max_lag 1", 8, ROLLOUTS, {"collectors": 2, "max_lag": 1}, 1),
    ],
}
CHUNKS = {"replay": 2_048, "rollouts": 32_768}
"""Steps per timing: two rollouts of 2,048 steps of each environment."""


class Runner:
    """Trains in one way, chunk by chunk, and stores its times."""

    def __init__(self, algorithm: str, way: Way, chunk: int) -> None:
        self.name, count, settings, place, self.threads = way
        self.env = make_vec_env(ENV, count, **place)
        self.agent, self.chunk = rlsdk.make(algorithm, env=self.env, seed=0, **settings), chunk
        self.wall, self.learner, self.collector = list[float](), list[float](), list[float]()

    def learn(self) -> None:
        """Train for one chunk and store its times."""
        began, used, elsewhere = time.perf_counter(), time.process_time(), self._elsewhere()
        self.agent.learn(self.chunk, reset_num_timesteps=False, threads=self.threads)
        self.wall.append(time.perf_counter() - began)
        self.learner.append(time.process_time() - used)
        self.collector.append(max((b - a for a, b in zip(elsewhere, self._elsewhere(), strict=True)), default=0.0))

    def _elsewhere(self) -> list[float]:
        """Seconds of processor time that each collector has used."""
        pids = self.env.workers.pids if isinstance(self.env, CollectorsVectorEnv) else []  # type: ignore[attr-defined]
        ticks = os.sysconf("SC_CLK_TCK")
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
        return [(int(own[11]) + int(own[12])) / ticks for own in fields]


def independent(algorithm: str, way: Way, chunk: int) -> Trainer:
    """Make a training that `Elsewhere` runs in another process."""
    runner = Runner(algorithm, way, chunk)
    return Trainer(lambda _: runner.learn(), runner, "no updates are timed")


def together(runner: Runner, other: Elsewhere) -> float:
    """Train both for one chunk at the same time; returns the seconds until both are finished."""
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        finished = pool.submit(other, runner.chunk)
        runner.learn()
        finished.result()
    return time.perf_counter() - began


def spread(ratios: Iterable[float]) -> str:
    """Median and range."""
    values = sorted(ratios)
    return f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=("sac", "tqc", "ppo"))
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--chunk", type=positive, help="steps per timing (default: 32,768 for ppo, 2,048 otherwise)")
    parser.add_argument(
        "--n-steps", type=positive, help="steps of each environment in a rollout (default: 2,048, that of ppo)"
    )
    given = parser.parse_args()
    kind = "rollouts" if given.algorithm == "ppo" else "replay"
    ways, chunk = WAYS[kind], given.chunk or CHUNKS[kind]
    if kind == "rollouts" and given.n_steps:
        ways = [(n, count, {**own, "n_steps": given.n_steps}, place, threads) for n, count, own, place, threads in ways]
    runners = [Runner(given.algorithm, way, chunk) for way in ways]
    one, other = (
        Runner(given.algorithm, ways[0], chunk),
        Elsewhere(partial(independent, given.algorithm, ways[0], chunk)),
    )
    both = list[float]()
    for _ in range(given.rounds + 1):
        for runner in runners:
            runner.learn()
        both.append(together(one, other))
    print(f"{given.algorithm}, {given.rounds} chunks of {chunk} steps, load {os.getloadavg()[0]:.1f}; medians")
    print_table(runners, chunk)
    limit = spread(2 * a / b for a, b in zip(runners[0].wall[1:], both[1:], strict=True))
    print(f"two independent trainings together: {limit} times one")


def print_table(runners: list[Runner], chunk: int) -> None:
    """Print the medians of all ways, without the first chunk of each, and close their environments."""
    print(
        "| way | steps/s | times (range) | learner, ms per step | busiest collector, ms per step |\n|---|---|---|---|---|"
    )
    first = runners[0].wall[1:]
    for runner in runners:
        gain = spread(a / b for a, b in zip(first, runner.wall[1:], strict=True))
        each = [statistics.median(values[1:]) / chunk * 1e3 for values in (runner.learner, runner.collector)]
        rate = chunk / statistics.median(runner.wall[1:])
        print(f"| {runner.name} | {rate:.0f} | {gain} | {each[0]:.2f} | {each[1]:.2f} |")
        runner.env.close()


if __name__ == "__main__":
    main()
