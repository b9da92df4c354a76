"""When processes pay: stepping busy environments of known cost in processes and in this one.

python -m benchmarks.processes
"""

from __future__ import annotations

import time
from typing import Any

import torch

from rlsdk.environments import make_vec_env
from rlsdk.environments.toy import ChainEnv

COSTS = (50e-6, 100e-6, 200e-6, 400e-6, 800e-6)
COUNTS = (2, 4, 8, 32)
ROUNDS = 5


class Busy(ChainEnv):
    """Uses a core for `seconds` per step."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=1000)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return super().step(action)


def rate(env: Any, steps: int) -> float:
    """Vector steps per second."""
    action = torch.zeros(env.num_envs, 1)
    began = time.perf_counter()
    for _ in range(steps):
        env.step(action)
    return steps / (time.perf_counter() - began)


def ratio(seconds: float, count: int) -> float:
    """Speed of processes over this process, median of interleaved rounds."""
    envs = [make_vec_env(lambda: Busy(seconds), count, vectorization=kind) for kind in ("sync", "async")]
    steps = max(20, int(0.4 / (seconds * count)))
    for env in envs:
        env.reset(0)
        rate(env, steps // 4)
    ratios = sorted(rate(envs[1], steps) / rate(envs[0], steps) for _ in range(ROUNDS))
    for env in envs:
        env.close()
    return ratios[ROUNDS // 2]


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print(
        "| step takes | " + " | ".join(f"{count} copies" for count in COUNTS) + " |\n|---" + "|---" * len(COUNTS) + "|"
    )
    for seconds in COSTS:
        row = " | ".join(f"{ratio(seconds, count):.2f}x" for count in COUNTS)
        print(f"| {seconds * 1e6:.0f} us | {row} |", flush=True)


if __name__ == "__main__":
    main()
