"""The cost of collecting: the loops of rlsdk and of the peer, compared with bare stepping.

Policies return constant actions. With `--acting` both sides use networks of TRPO (two layers of 64), and compute values and
log-probabilities.

python -m benchmarks.collection [--rounds N] [--acting]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch

import rlsdk
from benchmarks.arguments import positive
from rlsdk.environments import make_vec_env
from rlsdk.records import Act, ActingState, Observation
from rlsdk.training.collector import collect

CASES = [("CartPole-v1", 12_000), ("HalfCheetah-v5", 3_000)]
COUNTS = (1, 8, 64)
LENGTH = 32
"""Steps of each environment in a rollout."""
ACTING_LENGTH = 256
"""Steps of each environment in a rollout with `--acting`."""


class Fixed:
    """A policy that always returns the same actions, with the extras of an actor-critic."""

    def __init__(self, action: torch.Tensor) -> None:
        self.action, self.extra = action, (torch.zeros(len(action)), torch.zeros(len(action)))

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    def act(self, observation: Observation, carry: Any, *, deterministic: bool, generator: Any) -> Act[Any, Any]:
        return Act(self.action, carry, self.extra)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, /) -> None: ...


def actions_for(name: str, count: int) -> Any:
    """One random action for each environment."""
    space = gymnasium.make(name).action_space
    space.seed(0)
    return np.stack([space.sample() for _ in range(count)])


def bare(name: str, count: int) -> Callable[[], None]:
    """Make a function that runs a bare Python loop over environments."""
    environments, actions = [gymnasium.make(name) for _ in range(count)], actions_for(name, count)
    for i, environment in enumerate(environments):
        environment.reset(seed=i)

    def run() -> None:
        for _ in range(LENGTH):
            for environment, action in zip(environments, actions, strict=True):
                _, _, terminated, truncated, _ = environment.step(action)
                if terminated or truncated:
                    environment.reset()

    return run


def ours(name: str, count: int, *, acting: bool = False) -> Callable[[], None]:
    """Make a function that collects with rlsdk. With `acting` it uses networks, and computes values and log-probabilities."""
    env, generator = make_vec_env(name, count, vectorization="sync"), torch.Generator()
    policy: Any = Fixed(torch.from_numpy(actions_for(name, count)))
    if acting:
        policy = rlsdk.make("trpo", env=env, seed=0, device="cpu").parts.policy
    at = ActingState(env.reset(0), policy.initial_carry(count))

    def run() -> None:
        nonlocal at
        rollout = collect(env, policy, at, ACTING_LENGTH if acting else LENGTH, generator=generator)
        if acting:
            policy.estimates(rollout.steps)
        at = ActingState(rollout.last_observation, rollout.last_carry)

    return run


def theirs(name: str, count: int, *, acting: bool = False) -> Callable[[], None]:
    """Make a function that collects with `collect_rollouts` of sb3-contrib's TRPO. Without `acting` its policy is constant."""
    from sb3_contrib import TRPO
    from stable_baselines3.common.callbacks import CallbackList
    from stable_baselines3.common.env_util import make_vec_env as make_theirs

    length = ACTING_LENGTH if acting else LENGTH
    model: Any = TRPO("MlpPolicy", make_theirs(name, count, seed=0), n_steps=length, device="cpu", seed=0)
    if not acting:
        action, zeros = torch.from_numpy(actions_for(name, count)), torch.zeros(count)
        model.policy.forward = lambda observation: (action, zeros, zeros)
        model.policy.predict_values = lambda observation: zeros
    _, callback = model._setup_learn(10**9, CallbackList([]))

    def run() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=length)

    return run


def seconds(run: Callable[[], None], times: int) -> float:
    """The processor time of `times` calls, in seconds."""
    began = time.process_time()
    for _ in range(times):
        run()
    return time.process_time() - began


def per_step_of(kinds: list[Callable[[], None]], budget: int, count: int, rounds: int, length: int = LENGTH) -> Any:
    """The microseconds per environment step [rounds, kinds], after a warm-up. All kinds are timed in every round. `budget`:
    environment steps per timing."""
    times = max(2, budget // (length * count))
    for run in kinds:
        seconds(run, max(1, times // 4))
    table = np.array([[seconds(run, times) for run in kinds] for _ in range(rounds)])
    return table / (times * length * count) * 1e6


def measure(name: str, budget: int, count: int, rounds: int) -> str:
    """Measure one row of the table without networks."""
    table = per_step_of([bare(name, count), ours(name, count), theirs(name, count)], budget, count, rounds)
    per_step, ratio = np.median(table, axis=0), np.median(table / table[:, :1], axis=0)
    ours_, theirs_ = (f"{per_step[k]:.1f} ({ratio[k]:.2f}x)" for k in (1, 2))
    return f"| {name} | {count} | {per_step[0]:.1f} | {ours_} | {theirs_} |"


def measure_acting(name: str, budget: int, count: int, rounds: int) -> str:
    """Measure one row of the table with networks."""
    kinds = [ours(name, count, acting=True), theirs(name, count, acting=True)]
    table = per_step_of(kinds, budget, count, rounds, ACTING_LENGTH)
    (mine, other), ratio = np.median(table, axis=0), table[:, 1] / table[:, 0]
    spread = f"**{np.median(ratio):.1f}x** [{ratio.min():.1f} .. {ratio.max():.1f}]"
    return f"| {name} | {count} | {mine:.1f} | {other:.1f} | {spread} |"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--acting", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kinds = (
        "us per step, rlsdk | sb3-contrib | ratio" if given.acting else "bare, us per step | rlsdk | stable-baselines3"
    )
    print(f"| environment | copies | {kinds} |\n|---|---|---|---|---|")
    row = measure_acting if given.acting else measure
    for name, budget in CASES:
        for count in COUNTS:
            print(row(name, budget, count, given.rounds), flush=True)


if __name__ == "__main__":
    main()
