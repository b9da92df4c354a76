"""Steps of CartPole per second of processor time: gymnax in JAX beside C, torch and gymnasium; the table of rlsdk-jax's page.

python -m benchmarks.jax_environments [--rounds 5] [--write]

Actions are random. The time is that of all threads of the process, so other programs change it little.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from benchmarks.arguments import positive
from benchmarks.marked import write_table
from rlsdk.environments import make_vec_env
from rlsdk.runtime import limited_threads
from rlsdk_envs import make_c_vec_env, make_torch_vec_env

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "plugins" / "rlsdk-jax" / "README.md"
MARKS = "<!-- measured by python -m benchmarks.jax_environments -->", "<!-- end of environments -->"
HEAD = (
    "| environments | gymnax in JAX | C | torch | gymnasium's vector version | one after another |\n"
    "|---|---|---|---|---|---|"
)
COPIES = (16, 128, 1024, 8192)
SECONDS = 0.5
"""The processor time of one measurement."""


@contextmanager
def makers() -> Iterator[dict[str, Callable[[int], Any]]]:
    """Column of the table -> function that makes so many CartPoles."""
    cart_pole = runpy.run_path(str(ROOT / "examples" / "torch_environment" / "cartpole.py"))["CartPole"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "cartpole.so"
        source = ROOT / "examples" / "c_environment" / "cartpole.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], check=True)
        seen = spaces.Box(-np.inf, np.inf, (4,))
        yield {
            "jax": lambda count: make_vec_env("gymnax/CartPole-v1", count, vectorization="jax"),
            "c": lambda count: make_c_vec_env(library, count, observation_space=seen, action_space=spaces.Discrete(2)),
            "torch": lambda count: make_torch_vec_env(cart_pole(), count, device="cpu"),
            "gymnasium": lambda count: make_vec_env("CartPole-v1", count, vectorization="native"),
            "sync": lambda count: make_vec_env("CartPole-v1", count, vectorization="sync"),
        }


def speed(env: Any) -> float:
    """Environment steps per second of processor time, of a vector environment that was made and warmed up."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(2, (64, env.num_envs), generator=generator)
    calls, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        env.step(actions[calls % 64])
        calls += 1
    return calls * int(env.num_envs) / (time.process_time() - began)


def row(count: int, rounds: int) -> str:
    """The row of the table for so many environments. The columns take turns; each number is a median."""
    with makers() as made:
        # one after another is slow, and its speed does not depend on the number
        envs = {name: make(count) for name, make in made.items() if name != "sync" or count <= 128}
        for env in envs.values():
            env.reset(0)
            speed(env)
        found = {name: statistics.median(speed(env) for _ in range(rounds)) for name, env in envs.items()}
    cells = [f"{found[name]:,.0f}" if name in found else "" for name in made]
    return f"| {count:,} | {' | '.join(cells)} |"


def main() -> None:
    """Measure all rows, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into the page of the package")
    arguments = parser.parse_args()
    with limited_threads(1):
        rows = [row(count, arguments.rounds) for count in COPIES]
    table = "\n".join([HEAD, *rows])
    print(table)
    if arguments.write:
        write_table(PAGE, MARKS, table)


if __name__ == "__main__":
    main()
