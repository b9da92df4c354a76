"""The cost and the gain of executors: pieces of work, two cores, and collectors of a slow simulator.

python -m benchmarks.scaling [pieces] [cores] [waiting] [--write]    # the tables and the picture of docs/scaling.md

`--write` writes the results to docs/scaling.md, docs/images/scaling.svg and docs/images/scaling.csv. `--collectors 4,16`
measures fewer collectors. Each collector is a process of about 300 MB.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

import rlsdk
from benchmarks.marked import write_table
from rlsdk.environments import make_vec_env
from rlsdk.executors import capacity, make_executor
from rlsdk.interfaces import Executor
from rlsdk.runs import RunRequest
from rlsdk.runtime import quietly
from rlsdk_lab.many_runs import run_all

DOCS = Path(__file__).parents[1] / "docs"
RAY = "benchmarks.scaling:small_pieces"
NAMES = {
    "in-process": "in-process",
    "processes": "processes",
    "concurrent.futures:ProcessPoolExecutor": "futures",
    RAY: "ray",
}
"""Executor -> its name in tables."""
REPEATS = 5
ENVS, LENGTH, WAIT, ROUNDS = 64, 16, 0.05, 2
"""For the slow simulator: number of environments, steps of a rollout, seconds per step, number of timed rounds."""
Table = list[tuple[str, ...]]
PICTURE = """

```{image} images/scaling.svg
:alt: Environment steps per second against the number of collectors, both logarithmic: measured, and waiting alone.
:width: 100%
```

The numbers are in `docs/images/scaling.csv`."""


def small_pieces(workers: int) -> Executor:
    """Make an executor on Ray whose pieces take 1/64 of a CPU, so that `workers` pieces run on any machine."""
    from rlsdk_ray import RayExecutor, Resources

    return RayExecutor(workers, resources=Resources(num_cpus=1 / 64))


# --- the cost of a piece -------------------------------------------------------------------------------------------


@attrs.frozen
class Parcel:
    """An item with an array that no other item has, and an array that all items share."""

    own: NDArray[np.uint8]
    shared: NDArray[np.uint8]


def same(item: Parcel) -> NDArray[np.uint8]:
    """Return the separate array of an item: the smallest work that sends data both ways."""
    return item.own


SIZES = {
    "nothing": (1, 1, 200),
    "4 kB": (4000, 1, 200),
    "400 kB": (400_000, 1, 50),
    "4 MB": (4_000_000, 1, 20),
    "shared 4 MB": (1, 4_000_000, 50),
}
"""Name -> (bytes of each item's own array, bytes of the shared array, number of items)."""


def pieces() -> Table:
    """Measure milliseconds per piece, and processor time of this process per piece, for each size of data."""
    rows: Table = [("executor", *SIZES)]
    for place, name in NAMES.items():
        with opened(place, 2) as executor:
            executor.map(same, _items(1, 1, 8))  # starts the processes
            cells = [_per_piece(executor, _items(*size)) for size in SIZES.values()]
        rows.append((name, *(f"{wall:.2f} ({processor:.2f})" for wall, processor in cells)))
    return rows


def _items(own: int, shared: int, count: int) -> list[Parcel]:
    common = np.ones(shared, np.uint8)
    return [Parcel(np.full(own, i % 256, np.uint8), common) for i in range(count)]


def _per_piece(executor: Executor, items: list[Parcel]) -> tuple[float, float]:
    """Return medians of (milliseconds per piece, milliseconds of this process's processor time per piece)."""
    times = [_timed(lambda: executor.map(same, items)) for _ in range(REPEATS)]
    return tuple(1e3 * statistics.median(column) / len(items) for column in zip(*times, strict=True))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Call `work`. Returns (seconds, seconds of processor time of this process)."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


@contextmanager
def opened(place: str, workers: int) -> Iterator[Executor]:
    """A context manager that makes an executor and closes it."""
    executor = make_executor(place, workers)
    try:
        yield executor
    finally:
        executor.close()


# --- two cores -----------------------------------------------------------------------------------------------------


def cores() -> Table:
    """Measure steps per second with one worker and with two, for seeds, candidates and collectors."""
    users: dict[str, Callable[[str, int], float]] = {
        "4 seeds of PPO, CartPole": seeds,
        "ARS, HalfCheetah": candidates,
        "PPO with collectors, HalfCheetah": collecting,
    }
    rows: Table = [("work", "executor", "1 worker", "2 workers", "gain")]
    for what, measure in users.items():
        for place in ("processes", RAY):
            one, two = (statistics.median(measure(place, workers) for _ in range(3)) for workers in (1, 2))
            rows.append((what, NAMES[place], f"{one:,.0f}", f"{two:,.0f}", f"{two / one:.2f}"))
    return rows


def seeds(place: str, workers: int) -> float:
    """Environment steps per second of four runs, one for each seed."""
    with tempfile.TemporaryDirectory() as folder, opened(place, workers) as executor, quietly(True):
        run_all(_requests(Path(folder) / "first", 2, 256), executor)
        requests = _requests(Path(folder) / "timed", 4, 16_384)
        seconds, _ = _timed(lambda: run_all(requests, executor))
    return 4 * 16_384 / seconds


def _requests(folder: Path, count: int, steps: int) -> dict[str, RunRequest]:
    settings = {"n_steps": 128, "batch_size": 256}
    common: dict[str, Any] = {"algorithm": "ppo", "env": "CartPole-v1", "steps": steps, "n_envs": 8, "eval_every": 0}
    common |= {"eval_episodes": 1, "use_preset": False, "vectorization": "sync", "threads": 1}
    return {
        f"seed {seed}": RunRequest(**common, settings={**settings, "seed": seed}, out=folder / str(seed))
        for seed in range(count)
    }


def candidates(place: str, workers: int) -> float:
    """Environment steps per second of ARS."""
    env = make_vec_env("HalfCheetah-v5", 8, vectorization=place, workers=workers)
    return _learned(rlsdk.make("ars", policy="LinearPolicy", env=env, n_delta=8, n_top=8, seed=0), 16_000, 3)


def collecting(place: str, workers: int) -> float:
    """Environment steps per second of PPO with collectors."""
    env = make_vec_env("HalfCheetah-v5", 8, collectors=workers, executor=place)
    return _learned(rlsdk.make("ppo", env=env, n_steps=256, batch_size=256, n_epochs=4, seed=0), 2048, 4)


def _learned(agent: Any, steps: int, rounds: int) -> float:
    agent.learn(steps)  # starts the processes
    before = agent.num_timesteps
    seconds, _ = _timed(lambda: agent.learn(rounds * steps, reset_num_timesteps=False))
    done = agent.num_timesteps - before
    agent.env.close()
    return float(done) / seconds


# --- a slow simulator ----------------------------------------------------------------------------------------------


class Waiting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose steps wait, as for a simulator on another machine."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        time.sleep(WAIT)
        return super().step(action)


def waiting(counts: Iterable[int]) -> Table:
    """Measure steps per second for each number of collectors, compared with the rate that waiting alone allows."""
    rows: Table = [
        ("collectors", "steps/s", "waiting alone", "efficiency", "processor time of the learner per round, ms")
    ]
    for count in counts:
        env = make_vec_env(Waiting, ENVS, collectors=count, executor=RAY)
        agent = rlsdk.make("ppo", env=env, n_steps=LENGTH, batch_size=256, n_epochs=4, seed=0)
        size = ENVS * LENGTH
        agent.learn(size)
        seconds, used = _timed(partial(agent.learn, ROUNDS * size, reset_num_timesteps=False))
        env.close()
        ideal = count / WAIT
        rate = ROUNDS * size / seconds
        rows.append((str(count), f"{rate:.0f}", f"{ideal:.0f}", f"{rate / ideal:.0%}", f"{1e3 * used / ROUNDS:.0f}"))
        print(rows[-1], flush=True)
    return rows


# --- writing -------------------------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    head, *rows = table
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *rows))


def write(name: str, table: Table) -> None:
    """Replace one table of docs/scaling.md. The table of the slow simulator also has a picture and a CSV file."""
    page, mark, end = DOCS / "scaling.md", f"<!-- measured: {name} -->", f"<!-- end of {name} -->"
    shown = markdown(table) + (PICTURE if name == "waiting" else "")
    write_table(page, (mark, end), shown)
    if name == "waiting":
        with open(DOCS / "images" / "scaling.csv", "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(table)
        picture(table)


def picture(table: Table) -> None:
    """Draw steps per second against the number of collectors, with logarithmic axes, and the ideal."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text, not paths
    counts, rates, ideal = ([float(row[i]) for row in table[1:]] for i in range(3))
    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axis.loglog(counts, ideal, ":", color="#9ca3af", label="waiting alone")
    axis.loglog(counts, rates, "o-", color="#2563eb", label="measured")
    axis.set_xticks(counts, [f"{count:.0f}" for count in counts])
    axis.minorticks_off()
    axis.set_xlabel("collectors")
    axis.set_ylabel("environment steps per second")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "images" / "scaling.svg", metadata={"Date": None})


def main() -> None:
    """Measure and print; write with `--write`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["pieces", "cores", "waiting"])
    parser.add_argument("--write", action="store_true", help="replace the tables and the picture of docs/scaling.md")
    parser.add_argument("--collectors", default="4,16,64", help="numbers of collectors of the slow simulator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    counts = [int(count) for count in options.collectors.split(",")]
    parts: dict[str, Callable[[], Table]] = {"pieces": pieces, "cores": cores, "waiting": partial(waiting, counts)}
    print(f"{capacity('processes')} cores, load {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    with opened(RAY, 1):  # Ray is started once
        for name in options.parts:
            table = parts[name]()
            print(f"\n{name}\n{markdown(table)}", flush=True)
            if options.write:
                write(name, table)


if __name__ == "__main__":
    main()
