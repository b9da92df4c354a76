"""PPO on CartPole in torch with many environments: on the GPU, in part, and on the CPU; the second table of docs/guides/gpu.md.

python -m benchmarks.gpu_environments [--rounds 3] [--threads 8] [--write]
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import rlsdk
from benchmarks.arguments import positive
from benchmarks.marked import write_table
from rlsdk.environments import make_vec_env
from rlsdk.runtime import limited_threads
from rlsdk_envs import make_torch_vec_env

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guides" / "gpu.md"
MARKS = "<!-- measured by python -m benchmarks.gpu_environments -->", "<!-- end of environments -->"
HEAD = "| environments | all on the GPU | agent on the GPU, gymnasium on the CPU | all on the CPU | solved, all on the GPU |"
COPIES = (256, 1024, 4096, 16384)
SOLVED = 475.0
"""The mean return of the last 100 episodes with which CartPole-v1 counts as solved."""
CartPole = runpy.run_path(str(ROOT / "examples" / "torch_environment" / "cartpole.py"))["CartPole"]


def made(copies: int, where: str) -> Any:
    """PPO with rollouts of 32 steps, in four minibatches and four epochs."""
    if where == "gymnasium":
        env = make_vec_env("CartPole-v1", copies, vectorization="native")
    else:
        env = make_torch_vec_env(CartPole(), copies, device=where)
    settings: dict[str, Any] = {"n_steps": 32, "batch_size": 8 * copies, "n_epochs": 4, "learning_rate": 1e-3}
    return rlsdk.make("ppo", env=env, device="cpu" if where == "cpu" else "cuda", seed=0, **settings)


def seconds(model: Any, steps: int) -> float:
    """The wall-clock time of a training."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def solved(copies: int, limit: int = 200) -> str:
    """The seconds and steps of a new agent until the last 100 episodes have a mean return of 475, with warm libraries."""
    model, began = made(copies, "cuda"), time.perf_counter()
    for _ in range(limit):
        model.learn(32 * copies, reset_num_timesteps=False)
        returns = [episode["r"] for episode in model.ep_info_buffer]
        if len(returns) == 100 and statistics.mean(returns) >= SOLVED:
            return f"{time.perf_counter() - began:.1f} s, {model.num_timesteps / 1e6:.1f} M steps"
    return "not within the limit"


def row(copies: int, rounds: int) -> str:
    """One line of the table."""
    sides = {where: made(copies, where) for where in ("cuda", "gymnasium", "cpu")}
    chunk, found = 32 * copies, {where: list[float]() for where in sides}
    for model in sides.values():
        model.learn(4 * chunk)
    for turn in range(rounds):
        for where in list(sides) if turn % 2 == 0 else reversed(list(sides)):
            rollouts = 16 if where == "cuda" else 2
            found[where].append(rollouts * chunk / seconds(sides[where], rollouts * chunk))
    speeds = [f"{statistics.median(values):,.0f}" for values in found.values()]
    return f"| {copies:,} | " + " | ".join([*speeds, solved(copies)]) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table; with --write, put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_environments", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3, help="how often each side is timed")
    parser.add_argument("--threads", type=positive, default=8, help="threads of torch")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guides/gpu.md")
    options = parser.parse_args(arguments)
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    with limited_threads(options.threads):
        for copies in COPIES:
            lines.append(row(copies, options.rounds))
            print(lines[-1], flush=True)
    if options.write:
        write_table(PAGE, MARKS, "\n".join(lines))


if __name__ == "__main__":
    main()
