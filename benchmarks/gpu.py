"""Training on a GPU and on the CPU, of rlsdk and of the peer: the table of docs/guides/gpu.md.

python -m benchmarks.gpu [CASE ...] [--rounds 5] [--threads 8] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Case
from benchmarks.marked import replaced
from rlsdk.runtime.threads import limited_threads

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "gpu.md"
MARKS = "<!-- measured by python -m benchmarks.gpu -->", "<!-- end -->"
OFF_POLICY: dict[str, Any] = {"learning_starts": 1000, "buffer_size": 20_000}
WIDE: dict[str, Any] = {"net_arch": [1024, 1024]}
IMAGES: dict[str, Any] = {"env": "images", "policy": "CnnPolicy"}

CASES = {
    case.name: case
    for case in (
        Case("dqn, images", "dqn", peer="stable_baselines3.DQN", settings=OFF_POLICY, chunk=600, **IMAGES),
        Case("qrdqn, images", "qrdqn", peer="sb3_contrib.QRDQN", settings=OFF_POLICY, chunk=600, **IMAGES),
        Case(
            "ppo, images, 8 environments",
            "ppo",
            peer="stable_baselines3.PPO",
            settings={"n_steps": 128, "batch_size": 256, "n_epochs": 4},
            n_envs=8,
            warmup=1024,
            chunk=1024,
            **IMAGES,
        ),
        Case(
            "recurrent-ppo, images, 8 environments",
            "recurrent-ppo",
            peer="sb3_contrib.RecurrentPPO",
            env="images",
            policy="CnnLstmPolicy",
            settings={"n_steps": 128, "batch_size": 256, "n_epochs": 4},
            n_envs=8,
            warmup=1024,
            chunk=1024,
        ),
        Case("tqc", "tqc", "Pendulum-v1", "sb3_contrib.TQC", settings=OFF_POLICY, chunk=300),
        Case(
            "tqc, [1024, 1024], batches of 1,024",
            "tqc",
            "Pendulum-v1",
            "sb3_contrib.TQC",
            settings={**OFF_POLICY, "batch_size": 1024, "policy_kwargs": WIDE},
            chunk=60,
        ),
        Case(
            "ppo, CartPole, 8 environments",
            "ppo",
            "CartPole-v1",
            "stable_baselines3.PPO",
            n_envs=8,
            warmup=1024,
            chunk=16_384,
        ),
    )
}


def speeds(case: Case, rounds: int, threads: int) -> dict[str, list[float]]:
    """Environment steps per second of wall-clock time of each side, in every round. The sides run alternately."""
    sides = {
        "ours, GPU": (replace(case, device="cuda").ours(0), threads),
        "peer, GPU": (replace(case, device="cuda").theirs(0), threads),
        "ours, CPU": (case.ours(0), threads),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides) if turn % 2 == 0 else reversed(list(sides)):
            trainer, cores = sides[name]
            with limited_threads(cores):
                found[name].append(case.chunk / _seconds(lambda: trainer.learn(case.chunk)))  # noqa: B023
    return found


def _seconds(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def row(case: Case, found: dict[str, list[float]]) -> str:
    """One line of the table."""
    ratios = [a / b for a, b in zip(found["ours, GPU"], found["peer, GPU"], strict=True)]
    cells = [case.name, *(f"{statistics.median(found[name]):,.0f}" for name in found)]
    cells.append(f"**{statistics.median(ratios):.2f}x** [{min(ratios):.2f} .. {max(ratios):.2f}]")
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table; with --write, put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(map(repr, CASES))}; all without")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is timed")
    parser.add_argument("--threads", type=int, default=8, help="threads of torch")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guides/gpu.md")
    options = parser.parse_args(arguments)
    lines = ["| case | ours, GPU | peer, GPU | ours, CPU | ours over peer, GPU |", "|---|---|---|---|---|"]
    for name in options.cases or CASES:
        lines.append(row(CASES[name], speeds(CASES[name], options.rounds, options.threads)))
        print(lines[-1], flush=True)
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), *MARKS, "\n".join(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
