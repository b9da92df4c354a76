"""Several seeds at the same time on one GPU, each in a process of its own: the third table of docs/guides/gpu.md.

python -m benchmarks.gpu_seeds [--seconds 6] [--write]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

import rlsdk
from benchmarks.drawn_frames import DrawnFrames
from benchmarks.marked import write_table

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "gpu.md"
MARKS = "<!-- measured by python -m benchmarks.gpu_seeds -->", "<!-- end of seeds -->"
HEAD = "| agent | 1 seed | 4 seeds | 12 seeds |"
COUNTS = (1, 4, 12)
AGENTS: dict[str, dict[str, Any]] = {
    "tqc": {"env": "Pendulum-v1", "learning_starts": 500, "buffer_size": 20_000},
    "qrdqn": {"env": DrawnFrames, "policy": "CnnPolicy", "learning_starts": 500, "buffer_size": 5_000},
}


def train(name: str, seed: int, duration: float, start: Barrier, speeds: Queue[float]) -> None:
    """Train one seed; after a common start, put its steps per second into `speeds`."""
    torch.set_num_threads(1)
    model = rlsdk.make(name, device="cuda", seed=seed, **AGENTS[name]).learn(700)
    start.wait()
    began, steps = time.perf_counter(), model.num_timesteps
    while time.perf_counter() - began < duration:
        model.learn(50, reset_num_timesteps=False)
    speeds.put((model.num_timesteps - steps) / (time.perf_counter() - began))


def together(name: str, count: int, duration: float) -> float:
    """The steps per second of `count` seeds that train at the same time, summed."""
    context = multiprocessing.get_context("spawn")
    start, speeds = context.Barrier(count), context.Queue()
    workers = [context.Process(target=train, args=(name, i, duration, start, speeds)) for i in range(count)]
    for worker in workers:
        worker.start()
    total: float = sum(speeds.get(timeout=180) for _ in workers)
    for worker in workers:
        worker.join()
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table; with --write, put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_seeds", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each number is measured")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guides/gpu.md")
    options = parser.parse_args(arguments)
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for name in AGENTS:
        speeds = [together(name, count, options.seconds) for count in COUNTS]
        cells = [f"{speed:,.0f} ({speed / speeds[0]:.1f}x)" for speed in speeds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if options.write:
        write_table(PAGE, MARKS, "\n".join(lines))


if __name__ == "__main__":
    main()
