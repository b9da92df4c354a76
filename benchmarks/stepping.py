"""The cost of rlsdk's in-process vector environment, compared with a bare loop, a minimal one and gymnasium's.

python -m benchmarks.stepping [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from benchmarks.arguments import positive
from benchmarks.collection import CASES, COUNTS, LENGTH, actions_for, bare, per_step_of
from rlsdk.environments import make_vec_env


def by_hand(name: str, count: int) -> Callable[[], None]:
    """Make a function that runs a minimal loop with the same results: tensors of a step, last observations, resets."""
    environments = [gymnasium.make(name, disable_env_checker=True) for _ in range(count)]
    latest: list[Any] = [environment.reset(seed=i)[0] for i, environment in enumerate(environments)]
    actions = torch.from_numpy(actions_for(name, count))

    def step() -> Any:
        chosen, rewards, terminations, truncations, final = actions.numpy(), [], [], [], {}
        for i, environment in enumerate(environments):
            latest[i], reward, terminated, truncated, _ = environment.step(chosen[i])
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
            if terminated or truncated:
                final[i] = latest[i]
                latest[i] = environment.reset()[0]
        context = torch.tensor(rewards, dtype=torch.float32), torch.tensor(terminations), torch.tensor(truncations)
        return torch.from_numpy(np.stack(latest)), *context, final

    def run() -> None:
        for _ in range(LENGTH):
            step()

    return run


def gymnasiums(name: str, count: int) -> Callable[[], None]:
    """Make a function that steps gymnasium's SyncVectorEnv, which gives numpy arrays."""
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    env, actions = gymnasium.make_vec(name, count, "sync", vector_kwargs=mode), actions_for(name, count)
    env.reset(seed=0)

    def run() -> None:
        for _ in range(LENGTH):
            env.step(actions)

    return run


def ours(name: str, count: int) -> Callable[[], None]:
    """Make a function that steps rlsdk's vector environment."""
    env, actions = make_vec_env(name, count, vectorization="sync"), torch.from_numpy(actions_for(name, count))
    env.reset(0)

    def run() -> None:
        for _ in range(LENGTH):
            env.step(actions)

    return run


def measure(name: str, budget: int, count: int, rounds: int) -> str:
    """Measure one row of the table: medians over rounds, in each of which all kinds are timed."""
    table = per_step_of([make(name, count) for make in (bare, by_hand, gymnasiums, ours)], budget, count, rounds)
    bare_, hand = (np.median(table[:, 3] / table[:, k]) for k in (0, 1))
    cells = " | ".join(f"{value:.1f}" for value in np.median(table, axis=0))
    return f"| {name} | {count} | {cells} | {bare_:.2f}x | {hand:.2f}x |"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=positive, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| environment | copies | bare | minimal | gymnasium | rlsdk | relative to bare | relative to minimal |")
    print("|---|---|---|---|---|---|---|---|")
    for name, budget in CASES:
        for count in COUNTS:
            print(measure(name, budget, count, rounds), flush=True)


if __name__ == "__main__":
    main()
