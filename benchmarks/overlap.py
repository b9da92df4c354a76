"""Learning and collecting at the same time on HalfCheetah: what `collectors` and `max_lag` gain over one core.

`python -m benchmarks.overlap sac` (or `tqc`, `ppo`) prints the table of docs/collecting.md. All ways train one
chunk after another alternately, so that other programs disturb all of them alike. The table also has the processor time of the
learner and of the busiest collector. With one core for each, the wall-clock time would be the larger of the two.

Two cores that share caches and memory are slower than twice one core. The last line is the speed of two independent trainings
together, relative to one alone: no way of using two cores can gain more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.synchronize import Event, Lock
from pathlib import Path
from typing import Any

import rlsdk
from rlsdk.environments import CollectorsVectorEnv, make_vec_env

ENV = "HalfCheetah-v5"
REPLAY = {"learning_starts": 200, "buffer_size": 100_000}
TOGETHER = {**REPLAY, "train_freq": 32, "gradient_steps": 32}
ROLLOUTS = {"n_steps": 256, "normalize": True}
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
        pids = self.env._workers.pids if isinstance(self.env, CollectorsVectorEnv) else []  # type: ignore[attr-defined]
        ticks = os.sysconf("SC_CLK_TCK")
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
        return [(int(own[11]) + int(own[12])) / ticks for own in fields]


def train_beside(algorithm: str, way: Way, chunk: int, wanted: Event, training: Lock) -> None:
    """Train in another process whenever `wanted` is set, and hold the lock meanwhile."""
    runner = Runner(algorithm, way, chunk)
    while True:
        wanted.wait()
        with training:
            runner.learn()


class Company:
    """An independent training in another process, which runs only in the body of `with`."""

    def __init__(self, algorithm: str, way: Way, chunk: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.wanted, self.training = context.Event(), context.Lock()
        arguments = (algorithm, way, chunk, self.wanted, self.training)
        context.Process(target=train_beside, args=arguments, daemon=True).start()

    def __enter__(self) -> None:
        self.wanted.set()
        while self.training.acquire(block=False):
            self.training.release()
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self.wanted.clear()
        with self.training:  # waits until the other training has completed its chunk
            pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=("sac", "tqc", "ppo"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=20_480)
    given = parser.parse_args()
    ways = WAYS["rollouts" if given.algorithm == "ppo" else "replay"]
    runners = [Runner(given.algorithm, way, given.chunk) for way in ways]
    accompanied, company = Runner(given.algorithm, ways[0], given.chunk), Company(given.algorithm, ways[0], given.chunk)
    for _ in range(given.rounds + 1):
        for runner in runners:
            runner.learn()
        with company:
            accompanied.learn()
    print(f"{given.algorithm}, {given.rounds} chunks of {given.chunk} steps, load {os.getloadavg()[0]:.1f}; medians")
    print_table(runners, given.chunk)
    shares = sorted(2 * a / b for a, b in zip(runners[0].wall[1:], accompanied.wall[1:], strict=True))
    middle = statistics.median(shares)
    print(f"two independent trainings together: {middle:.2f} ({shares[0]:.2f} to {shares[-1]:.2f}) times one")


def print_table(runners: list[Runner], chunk: int) -> None:
    """Print the medians of all ways, without the first chunk of each, and close their environments."""
    print(
        "| way | steps/s | times (range) | learner, ms per step | busiest collector, ms per step |\n|---|---|---|---|---|"
    )
    first = runners[0].wall[1:]
    for runner in runners:
        gains = sorted(a / b for a, b in zip(first, runner.wall[1:], strict=True))
        each = [statistics.median(values[1:]) / chunk * 1e3 for values in (runner.learner, runner.collector)]
        rate = chunk / statistics.median(runner.wall[1:])
        gain = f"{statistics.median(gains):.2f} ({gains[0]:.2f} to {gains[-1]:.2f})"
        print(f"| {runner.name} | {rate:.0f} | {gain} | {each[0]:.2f} | {each[1]:.2f} |")
        runner.env.close()


if __name__ == "__main__":
    main()
