"""Environment steps per second of PPO with collectors, if steps wait, as for a simulator in another program.

`python -m benchmarks.collectors` prints the table of docs/collecting.md; `--executor` chooses where collectors
run, `--wait` the seconds per step.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium

import rlsdk
from rlsdk.environments import make_vec_env

ENVS, LENGTH, ROUNDS = 8, 32, 4


class Waiting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose steps wait for some seconds, without using the processor."""

    def __init__(self, wait: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.wait = wait

    def step(self, action: Any) -> Any:
        time.sleep(self.wait)
        return super().step(action)


def steps_per_second(collectors: int | None, executor: str, wait: float) -> tuple[float, float]:
    """Return (environment steps per second of training, the share of its time beyond the ideal time of collecting)."""
    envs = make_vec_env(
        Waiting, ENVS, env_kwargs={"wait": wait}, collectors=collectors, executor=executor, **_plain(collectors)
    )
    agent = rlsdk.make("ppo", env=envs, seed=0, n_steps=LENGTH, batch_size=64, n_epochs=4)
    agent.learn(ENVS * LENGTH)  # starts the processes and warms up the kernels
    began = time.perf_counter()
    agent.learn(ROUNDS * ENVS * LENGTH, reset_num_timesteps=False)
    taken = time.perf_counter() - began
    envs.close()
    ideal = ROUNDS * LENGTH * wait * ENVS / (collectors or 1)
    return ROUNDS * ENVS * LENGTH / taken, 1.0 - ideal / taken


def _plain(collectors: int | None) -> dict[str, Any]:
    return {"vectorization": "sync"} if collectors is None else {}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", default="processes")
    parser.add_argument("--wait", type=float, default=0.01)
    given = parser.parse_args()
    print(f"{ENVS} environments, {given.wait * 1e3:g} ms per step, n_steps {LENGTH}, {given.executor}")
    print("| collectors | steps/s | times | not waiting |\n|---|---|---|---|")
    first = None
    for collectors in (None, 1, 2, 4, 8):
        rate, rest = steps_per_second(collectors, given.executor, given.wait)
        first = first or rate
        print(f"| {collectors or 'none'} | {rate:.0f} | {rate / first:.2f} | {rest:.0%} |", flush=True)


if __name__ == "__main__":
    main()
