"""Training on a GPU and on the CPU, of rlsdk and of the peer: the table of docs/guides/gpu.md.

python -m benchmarks.gpu [CASE ...] [--rounds 5] [--threads 8] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.arguments import positive
from benchmarks.cases import Case
from benchmarks.marked import with_row
from benchmarks.trainers import Trainer
from rlsdk.runtime import limited_threads

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "gpu.md"
MARKS = "<!-- measured by python -m benchmarks.gpu -->", "<!-- end -->"
HEAD = "| case | rlsdk, GPU | peer, GPU | rlsdk, CPU | rlsdk over peer, GPU |\n|---|---|---|---|---|"
OFF_POLICY: dict[str, Any] = {"learning_starts": 1000, "buffer_size": 20_000}
WIDE: dict[str, Any] = {"net_arch": [1024, 1024]}
IMAGES: dict[str, Any] = {"env": "drawn frames", "policy": "CnnPolicy"}

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
            env="drawn frames",
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
    on_gpu = replace(case, device="cuda")
    with limited_threads(threads):
        sides = {"rlsdk, GPU": on_gpu.ours(0), "peer, GPU": on_gpu.theirs(0), "rlsdk, CPU": case.ours(0)}
        found: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(rounds):
            for name in list(sides) if turn % 2 == 0 else reversed(list(sides)):
                found[name].append(case.chunk / _seconds(sides[name], case.chunk))
    return found


def _seconds(trainer: Trainer, steps: int) -> float:
    """The wall-clock time of a training, with the operations that the GPU has not finished when `learn` returns."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    trainer.learn(steps)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def row(case: Case, found: dict[str, list[float]]) -> str:
    """One line of the table."""
    ratios = [a / b for a, b in zip(found["rlsdk, GPU"], found["peer, GPU"], strict=True)]
    cells = [case.name, *(f"{statistics.median(found[name]):,.0f}" for name in found)]
    cells.append(f"**{statistics.median(ratios):.2f}x** [{min(ratios):.2f} .. {max(ratios):.2f}]")
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table; with --write, put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(map(repr, CASES))}; all without")
    parser.add_argument("--rounds", type=positive, default=5, help="how often each side is timed")
    parser.add_argument("--threads", type=positive, default=8, help="threads of torch")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guides/gpu.md")
    options = parser.parse_args(arguments)
    print(HEAD)
    for name in options.cases or CASES:
        line = row(CASES[name], speeds(CASES[name], options.rounds, options.threads))
        print(line, flush=True)
        if options.write:
            page = with_row(PAGE.read_text(encoding="utf-8"), MARKS, HEAD, CASES, line)
            PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
