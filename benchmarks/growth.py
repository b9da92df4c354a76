"""How the cost of a step grows with sizes: environments, width, batch, observation, masks, replay buffer.

python -m benchmarks.growth [--write]     # the table and the picture of docs/performance.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

import rlsdk
from benchmarks.marked import write_table
from rlsdk import tree
from rlsdk.environments import make_vec_env
from rlsdk_envs import AnySpaceEnv, InvalidActionEnvDiscrete

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- measured by python -m benchmarks.growth -->"
END = "<!-- end of growth -->"
ROUNDS = 5


@dataclass(frozen=True)
class Sweep:
    """A size to vary, and the function that makes an agent for a size. `steps` are timed per round."""

    name: str
    sizes: tuple[int, ...]
    make: Callable[[int], Any]
    steps: int


def _agent(algorithm: str, env: Any, n_envs: int = 1, **settings: Any) -> Any:
    return rlsdk.make(algorithm, env=make_vec_env(env, n_envs, vectorization="sync"), seed=0, device="cpu", **settings)


def _of_width(width: int) -> Any:
    return _agent(
        "maskable-ppo", "CartPole-v1", 8, n_steps=256, use_masking=False, policy_kwargs={"net_arch": [width, width]}
    )


def _of_batch(batch: int) -> Any:
    env = "Pendulum-v1"
    return _agent(
        "tqc", env, batch_size=batch, learning_starts=1000, buffer_size=20_000, policy_kwargs={"net_arch": [64, 64]}
    )


def _of_observation(numbers: int) -> Any:
    box = spaces.Box(-1.0, 1.0, (numbers,), np.float32)
    return _agent("maskable-ppo", lambda: AnySpaceEnv(box, spaces.Discrete(4)), 8, use_masking=False, n_steps=256)


def _of_masks(entries: int) -> Any:
    return _agent("maskable-ppo", lambda: InvalidActionEnvDiscrete(entries, entries // 2), 8, n_steps=128)


def _of_memory(rows: int) -> Any:
    """Make an agent with a full replay buffer, as after a long training."""
    settings: dict[str, Any] = {"learning_starts": 100, "policy_kwargs": {"net_arch": [64, 64]}}
    agent = _agent("qrdqn", "CartPole-v1", buffer_size=rows, **settings).learn(200, threads=None)
    buffer = agent.parts.buffer
    for leaf in tree.leaves(buffer.storage):
        leaf[buffer.filled :] = 0
    buffer.filled = buffer.rows
    return agent


SWEEPS = (
    Sweep(
        "environments (MaskablePPO, CartPole)",
        (1, 4, 16, 64, 256),
        lambda count: _agent(
            "maskable-ppo", "CartPole-v1", count, use_masking=False, n_steps=max(16, 2048 // count), batch_size=256
        ),
        4096,
    ),
    Sweep("width of two layers (MaskablePPO, CartPole)", (16, 64, 256, 1024), _of_width, 2048),
    Sweep("batch (TQC, Pendulum)", (32, 128, 512, 2048), _of_batch, 60),
    Sweep("numbers of an observation (MaskablePPO)", (4, 64, 1024, 16_384), _of_observation, 2048),
    Sweep("entries of a mask (MaskablePPO)", (10, 100, 1000, 10_000), _of_masks, 1024),
    Sweep("rows of replay buffer (QR-DQN, CartPole)", (1000, 10_000, 100_000, 1_000_000), _of_memory, 2000),
)


def measured(sweep: Sweep) -> Iterator[tuple[int, float, int]]:
    """Yield (size, median microseconds of processor time per environment step, bytes of the replay buffer)."""
    for size in sweep.sizes:
        agent, steps, times = sweep.make(size), sweep.steps, []
        agent.learn(max(steps, 1100 if agent.spec.family == "off-policy" else 0), threads=None)
        for _ in range(ROUNDS):
            before, began = agent.num_timesteps, time.process_time()
            agent.learn(steps, reset_num_timesteps=False, threads=None)
            times.append((time.process_time() - began) / (agent.num_timesteps - before))
        buffer = agent.parts.buffer
        yield size, sorted(times)[ROUNDS // 2] * 1e6, 0 if buffer is None else buffer.bytes_required()


def picture(results: dict[str, list[tuple[int, float, int]]]) -> None:
    """Draw one panel for each sweep, with logarithmic axes. The dotted line shows proportional growth."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text, not paths

    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axis, (name, rows) in zip(axes.flat, results.items(), strict=True):
        sizes, times = [row[0] for row in rows], [row[1] for row in rows]
        axis.loglog(sizes, times, "o-", color="#2563eb")
        axis.loglog(sizes, [times[-1] * size / sizes[-1] for size in sizes], ":", color="#9ca3af")
        axis.set_title(name, fontsize=9)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set_ylim(min(times) / 3, max(times) * 3)
        axis.set_ylabel("us per step", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "images" / "growth.svg", metadata={"Date": None})


def main() -> None:
    """Measure and print; write with `--write`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the table and picture of docs/performance.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {sweep.name: list(measured(sweep)) for sweep in SWEEPS}
    lines = ["| size | us of processor time per environment step |", "|---|---|"]
    for name, rows in results.items():
        cells = ", ".join(f"{size:,}: {microseconds:,.0f}" for size, microseconds, _ in rows)
        taken = ", ".join(f"{bytes_ / 2**20:,.1f}" for *_, bytes_ in rows)
        lines.append(f"| {name} | {cells}" + (f" ({taken} MiB)" if "memory" in name else "") + " |")
    table = "\n".join(lines)
    print(table)
    if options.write:
        page = DOCS / "performance.md"
        write_table(page, (MARK, END), table)
        picture(results)


if __name__ == "__main__":
    main()
