"""Memory: replay buffers of images, and a replay buffer of a million rows in a file; `python -m benchmarks` measures peaks.

python -m benchmarks.memory [images] [files] [--write]     # the tables of docs/memory.md
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import rlsdk
from benchmarks.marked import write_table
from rlsdk import tree
from rlsdk.environments import make_vec_env
from rlsdk_envs import FakeImageEnv

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
ROUNDS = 7
ROWS = 2_000
"""The number of rows of the replay buffers of images."""
FRAMES, SIZE = 4, 84
BATCHES = (32, 256)
MILLION = 1_000_000


def _mean_seconds(call: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


# --- images ----------------------------------------------------------------------------------------------------------


def _single_frames() -> Any:
    from gymnasium.spaces import Discrete

    return FakeImageEnv(SIZE, 1, action_space=Discrete(6))


def our_images() -> tuple[int, Callable[[int], object]]:
    """Return (bytes, sampling function) of rlsdk's full replay buffer, which stores single frames."""
    env = make_vec_env(_single_frames, 1, vectorization="sync")
    settings: dict[str, Any] = {"buffer_size": ROWS, "learning_starts": 2 * ROWS, "optimize_memory_usage": True}
    agent: Any = rlsdk.make(
        "dqn", env=env, policy="CnnPolicy", frame_stack=FRAMES, seed=0, device="cpu", **settings
    ).learn(ROWS + 8, threads=None)
    buffer, generator = agent.parts.buffer, torch.Generator().manual_seed(0)
    return buffer.bytes_required(), lambda size: buffer.sample(size, generator)


def peer_images(optimize: bool) -> tuple[int, Callable[[int], object]]:
    """Return (bytes, sampling function) of a full replay buffer of stable-baselines3, which stores stacked frames."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env as peer_envs
    from stable_baselines3.common.vec_env import VecFrameStack

    env = VecFrameStack(peer_envs(_single_frames, 1), FRAMES)
    extra: Any = {"replay_buffer_kwargs": {"handle_timeout_termination": False}} if optimize else {}
    settings: Any = {"buffer_size": ROWS, "learning_starts": 2 * ROWS, "optimize_memory_usage": optimize, **extra}
    model = DQN("CnnPolicy", env, seed=0, device="cpu", **settings).learn(ROWS + 8)
    buffer: Any = model.replay_buffer
    taken = sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))
    return taken, buffer.sample


def images() -> str:
    """Measure bytes and sampling times of replay buffers of images, all sides alternately. Returns the table."""
    sides = {
        "rlsdk, every frame once": our_images(),
        "stable-baselines3": peer_images(False),
        "stable-baselines3, `optimize_memory_usage=True`": peer_images(True),
    }
    times: dict[tuple[str, int], list[float]] = {(name, size): [] for name in sides for size in BATCHES}
    for turn in range(ROUNDS):
        for name in list(sides) if turn % 2 == 0 else list(reversed(sides)):
            for size in BATCHES:
                times[name, size].append(_mean_seconds(partial(sides[name][1], size), 6400 // size))
    full = sides["stable-baselines3"][0]
    rows = (
        (
            *(name, f"{taken / 2**20:,.0f}", f"{taken / full:.1%}"),
            *(f"{median(times[name, size]) * 1e6:,.0f} us" for size in BATCHES),
        )
        for name, (taken, _) in sides.items()
    )
    sampling = (f"a sample of {size}, processor time" for size in BATCHES)
    head = ("replay buffer", "MiB", "of stable-baselines3's default", *sampling)
    return _table(head, rows)


# --- files -----------------------------------------------------------------------------------------------------------


def _filled() -> Any:
    """Make an agent on HalfCheetah whose replay buffer has a million rows, repeated from a short training."""
    env = make_vec_env("HalfCheetah-v5", 1, vectorization="sync")
    agent: Any = rlsdk.make("sac", env=env, seed=0, device="cpu", buffer_size=MILLION, learning_starts=2000)
    stored = agent.learn(1000, threads=None).parts.buffer
    for leaf in tree.leaves(stored.storage):
        leaf[stored.filled :] = leaf[: stored.filled].repeat(MILLION // stored.filled - 1, *[1] * (leaf.dim() - 1))
    stored.filled = stored.written = MILLION
    stored.head = 0
    return agent


def _peer_filled() -> Any:
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", "HalfCheetah-v5", seed=0, device="cpu", buffer_size=MILLION, learning_starts=2000)
    model.learn(1000)
    buffer: Any = model.replay_buffer
    for value in vars(buffer).values():
        if isinstance(value, np.ndarray):
            value[1000:] = np.tile(value[:1000], (MILLION // 1000 - 1, *[1] * (value.ndim - 1)))
    buffer.full = True
    return model


def _numpy(path: Path, size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    data = np.ones(size, np.uint8)

    def save() -> None:
        with path.open("wb") as stream:
            data.tofile(stream)
            stream.flush()
            os.fsync(stream.fileno())  # as rlsdk does

    return save, lambda: np.fromfile(path, np.uint8)


def files() -> str:
    """Measure the speed of saving and loading a replay buffer of a million rows, and of numpy alone with the same number of
    bytes. Returns the table."""
    ours, peer = _filled(), _peer_filled()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own, other = folder / "ours.rlsdk", folder / "peer.pkl"
        ours.save_replay_buffer(own)
        peer.save_replay_buffer(other)
        calls = {
            "rlsdk": (lambda: ours.save_replay_buffer(own), lambda: ours.load_replay_buffer(own), own),
            "stable-baselines3": (
                lambda: peer.save_replay_buffer(other),
                lambda: peer.load_replay_buffer(other),
                other,
            ),
            "`tofile` and `fromfile` of numpy": (*_numpy(folder / "numpy", own.stat().st_size), own),
        }
        return _table(("file", "MB", "saving, GB/s: CPU", "wall-clock", "loading: CPU", "wall-clock"), _speeds(calls))


def _speeds(calls: dict[str, tuple[Callable[[], object], Callable[[], object], Path]]) -> Iterator[tuple[str, ...]]:
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for name, pair in calls.items():
            for i, call in enumerate(pair[:2]):
                cpu, wall = time.process_time(), time.perf_counter()
                call()
                spent = time.process_time() - cpu, time.perf_counter() - wall
                found.setdefault((name, i), []).append(spent)
    for name, (_, _, path) in calls.items():
        size = path.stat().st_size
        both = [median(times) for i in (0, 1) for times in zip(*found[name, i], strict=True)]
        yield name, f"{size / 1e6:,.0f}", *(f"{size / seconds / 1e9:.2f}" for seconds in both)


PARTS = {"images": images, "files": files}


def main() -> None:
    """Measure and print; write with `--write`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all without")
    parser.add_argument("--write", action="store_true", help="replace the tables of docs/memory.md")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown parts {unknown}; there are {sorted(PARTS)}")
    torch.set_num_threads(1)
    for name in options.parts or PARTS:
        table = f"Measured {time.strftime('%Y-%m-%d')}.\n\n{PARTS[name]()}"
        if options.write:
            begin, end = f"<!-- measured by python -m benchmarks.memory {name} -->", f"<!-- end of {name} -->"
            write_table(PAGE, (begin, end), table)


if __name__ == "__main__":
    main()
