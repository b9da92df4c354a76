"""PPO on environments that one call steps together: gymnasium's own vector environments, C environments, and envpool's.

python -m benchmarks.native [CASE ...] [--rounds N] [--write]

Steps per second of processor time, with one thread, of everything that `learn` does, beside plain torch on the same environment
(`benchmarks/plain_ppo.py`); both take turns. `--write` puts the table into docs/performance.md. A case without a compiler, or
without envpool, is left out.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import rlsdk
from benchmarks.arguments import positive
from benchmarks.marked import with_row
from benchmarks.plain_ppo import PlainPPO, Sizes
from rlsdk.environments import make_vec_env
from rlsdk.registry import preset
from rlsdk.runtime import limited_threads
from rlsdk_envs import make_c_vec_env

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
MARK, END = "<!-- measured by python -m benchmarks.native -->", "<!-- end of native -->"
HEAD = "| case | environments x steps | rlsdk, steps/s | plain torch, steps/s | rlsdk over plain, median [range] |"
PRESET = "CartPole-v1-native"
CHUNK = 12
"""The number of rollouts per timing."""


@dataclass(frozen=True)
class Native:
    """A case: PPO on one environment."""

    what: str
    env: str
    n_envs: int
    settings: dict[str, Any]
    needs: str = ""
    """A program or a package that the case needs. Without it the case is left out."""

    @property
    def steps(self) -> int:
        """The number of environment steps of a rollout."""
        return int(self.n_envs * self.settings["n_steps"])

    def ours(self, folder: str) -> Callable[[int], object]:
        """Make a function that trains rlsdk's PPO for a number of steps."""
        model = rlsdk.make("ppo", env=self._env(folder), seed=0, device="cpu", **self.settings)
        return partial(model.learn, reset_num_timesteps=False, threads=1)

    def _env(self, folder: str) -> object:
        if self.env != "cartpole.c":
            threads = {} if self.env == "CartPole-v1" else {"num_threads": 1}
            return make_vec_env(self.env, self.n_envs, vectorization="native", env_kwargs=threads)
        source, library = ROOT / "examples" / "c_environment" / self.env, Path(folder) / "cartpole.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], check=True)
        seen, actions = spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2)
        return make_c_vec_env(library, self.n_envs, observation_space=seen, action_space=actions)

    def plain(self) -> Callable[[int], object] | None:
        """Make a function that trains `PlainPPO`; None for environments that it does not support."""
        if self.env != "CartPole-v1":
            return None
        names = ("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda")
        own = {name: self.settings[name] for name in names if name in self.settings}
        env = gymnasium.make_vec(self.env, self.n_envs, vectorization_mode="vector_entry_point")
        return PlainPPO(env, Sizes(self.n_envs, **own, shared="policy_kwargs" in self.settings)).learn


def _tuned() -> dict[str, Any]:
    """The settings of the preset."""
    known = preset("ppo", PRESET)
    assert known is not None
    return known.settings


def is_there(needs: str) -> bool:
    """Whether the program or package `needs` is installed."""
    return not needs or bool(shutil.which(needs) or find_spec(needs))


SEPARATE: dict[str, Any] = {"n_steps": 32, "batch_size": 8192}
CASES = {
    "one-epoch": Native("CartPole, two layers of 64 each", "CartPole-v1", 512, {**SEPARATE, "n_epochs": 1}),
    "four-epochs": Native("the same, four epochs", "CartPole-v1", 512, {**SEPARATE, "n_epochs": 4}),
    "preset": Native(f"CartPole, preset `{PRESET}`", "CartPole-v1", 2048, _tuned()),
    "c": Native("the same, CartPole in C", "cartpole.c", 2048, _tuned(), needs="cc"),
    "envpool-mujoco": Native(
        "envpool, HalfCheetah-v5",
        "HalfCheetah-v5",
        16,
        {"n_steps": 64, "batch_size": 256, "n_epochs": 4, "normalize": True},
        needs="envpool",
    ),
    "envpool-atari": Native(
        "envpool, Pong-v5",
        "Pong-v5",
        8,
        {"policy": "CnnPolicy", "n_steps": 32, "batch_size": 128, "n_epochs": 1},
        needs="envpool",
    ),
}


def rate(learn: Callable[[int], object], steps: int) -> float:
    """Train, and return environment steps per second of processor time."""
    began = time.process_time()
    learn(steps)
    return steps / (time.process_time() - began)


def measure(case: Native, rounds: int) -> str:
    """Measure one row of the table."""
    with tempfile.TemporaryDirectory() as folder, limited_threads(1):
        sides = [side for side in (case.ours(folder), case.plain()) if side is not None]
        steps = case.steps * (CHUNK if len(sides) > 1 or case.env == "cartpole.c" else 1)
        for side in sides:
            side(steps)
        table = [[rate(side, steps) for side in (sides if turn % 2 else sides[::-1])] for turn in range(rounds)]
    rates = [row if turn % 2 else row[::-1] for turn, row in enumerate(table)]
    ours, *other = (statistics.median(column) for column in zip(*rates, strict=True))
    ratios = [row[0] / row[1] for row in rates] if other else []
    spread = f"**{statistics.median(ratios):.2f}x** [{min(ratios):.2f} .. {max(ratios):.2f}]" if ratios else ""
    plain = f"{other[0]:,.0f}" if other else ""
    size = f"{case.n_envs:,} x {case.settings['n_steps']}"
    return f"| {case.what} | {size} | {ours:,.0f} | {plain} | {spread} |"


def main() -> None:
    """Measure and print; write with `--write`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--write", action="store_true", help="replace the rows in docs/performance.md")
    options = parser.parse_args()
    if unknown := sorted(set(options.cases) - set(CASES)):
        parser.error(f"unknown cases {unknown}; there are {sorted(CASES)}")
    header = HEAD + "\n" + "|---" * HEAD.count(" |") + "|"
    print(header)
    for name in options.cases or CASES:
        if not is_there(CASES[name].needs):
            print(f"{name} is left out: it needs {CASES[name].needs}")
            continue
        row = measure(CASES[name], options.rounds)
        print(row, flush=True)
        if options.write:
            page = PAGE.read_text(encoding="utf-8")
            names = [case.what for case in CASES.values()]
            PAGE.write_text(with_row(page, (MARK, END), header, names, row), encoding="utf-8")


if __name__ == "__main__":
    main()
