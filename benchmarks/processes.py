"""When worker processes are faster: environments whose steps take a fixed time, stepped in worker processes and in this one.

With `--latency`: ARS with several processes on environments that answer late, such as simulators on other machines.

python -m benchmarks.processes             # the table of docs/environments.md
python -m benchmarks.processes --latency   # the numbers of ARS in its README
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from rlsdk.environments import make_vec_env
from rlsdk_envs import ChainEnv

COSTS = (50e-6, 100e-6, 200e-6, 400e-6, 800e-6)
COUNTS = (2, 4, 8, 32)
ROUNDS = 5
LATENCY, WORKERS = 1e-3, (1, 2, 4, 8)


class Busy(ChainEnv):
    """An environment whose steps use a core for `seconds` each."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=1000)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return super().step(action)


class Late(ChainEnv):
    """An environment whose steps wait for `LATENCY` seconds without using a core."""

    def __init__(self) -> None:
        super().__init__(length=100)

    def step(self, action: Any) -> Any:
        time.sleep(LATENCY)
        return super().step(action)


def search_rate(workers: int, steps: int = 6400) -> float:
    """Environment steps per second of ARS with eight environments that answer late, in `workers` processes."""
    from rlsdk_ars import ARS

    env = make_vec_env(Late, 8, vectorization="async", workers=workers)
    model = ARS("LinearPolicy", env, n_delta=8, seed=0).learn(1600)  # starts the processes before the timing
    began = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    taken = time.perf_counter() - began
    env.close()
    return (model.num_timesteps - 1600) / taken


def rate(env: Any, steps: int) -> float:
    """Vector steps per second of `env`."""
    action = torch.zeros(env.num_envs, 1)
    began = time.perf_counter()
    for _ in range(steps):
        env.step(action)
    return steps / (time.perf_counter() - began)


def ratio(seconds: float, count: int) -> float:
    """The speed with worker processes divided by that in this process: the median of alternating rounds."""
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--latency", action="store_true", help="measure ARS on environments that answer late")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.latency:
        for workers in WORKERS:
            print(f"ARS, {workers} processes: {search_rate(workers):,.0f} steps/s", flush=True)
        return
    print(
        "| step takes | " + " | ".join(f"{count} copies" for count in COUNTS) + " |\n|---" + "|---" * len(COUNTS) + "|"
    )
    for seconds in COSTS:
        row = " | ".join(f"{ratio(seconds, count):.2f}x" for count in COUNTS)
        print(f"| {seconds * 1e6:.0f} us | {row} |", flush=True)


if __name__ == "__main__":
    main()
