"""Timing two trainers side by side: A B A B ..., per processor second, median and spread of the ratio."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cases import Case

MEMORY = """
import sys
import torch
torch.set_num_threads(1)
from benchmarks.cases import CASES
case = CASES[sys.argv[1]]
getattr(case, sys.argv[2])(0)(case.chunk)
status = open("/proc/self/status").read()  # ru_maxrss would include what the parent held when it forked
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


@dataclass(frozen=True)
class Comparison:
    """Environment steps per second of both sides, per round, by processor time and by the clock."""

    case: Case
    threads: int
    ours_cpu: list[float]
    theirs_cpu: list[float]
    ours_wall: list[float]
    theirs_wall: list[float]
    ours_mib: int
    theirs_mib: int

    @property
    def ratios(self) -> list[float]:
        """Ours over theirs in each round, by processor time; by the clock where other processes play."""
        pair = (self.ours_wall, self.theirs_wall) if self.case.workers else (self.ours_cpu, self.theirs_cpu)
        return [a / b for a, b in zip(*pair, strict=True)]

    def row(self) -> str:
        """One line of the table."""
        middle = statistics.median
        low, high = min(self.ratios), max(self.ratios)
        return (
            f"| {self.case.name} | {self.threads} | {middle(self.ours_cpu):.1f} | {middle(self.theirs_cpu):.1f}"
            f" | **{middle(self.ratios):.2f}x** [{low:.2f} .. {high:.2f}] | {middle(self.ours_wall):.1f}"
            f" | {middle(self.theirs_wall):.1f} | {self.ours_mib} | {self.theirs_mib} |"
        )


HEADER = (
    "| case | threads | ours, steps/CPU-s | peer, steps/CPU-s | ratio, median [range] | ours, steps/s | peer, steps/s"
    " | ours, MiB | peer, MiB |\n|---|---|---|---|---|---|---|---|---|"
)


def compare(case: Case, *, rounds: int, threads: int, seed: int = 0) -> Comparison:
    """Train both sides in turn, `rounds` times, in one process."""
    import torch

    torch.set_num_threads(threads)
    ours, theirs = case.ours(seed), case.theirs(seed)
    figures: dict[str, tuple[list[float], list[float]]] = {"ours": ([], []), "theirs": ([], [])}
    for turn in range(rounds):
        order = [("ours", ours), ("theirs", theirs)]
        for name, trainer in order if turn % 2 == 0 else reversed(order):
            cpu, wall = _rates(trainer, case.chunk)
            figures[name][0].append(cpu)
            figures[name][1].append(wall)
    (ours_cpu, ours_wall), (theirs_cpu, theirs_wall) = figures["ours"], figures["theirs"]
    memory = [_peak_memory(case, side) for side in ("ours", "theirs")]
    return Comparison(case, threads, ours_cpu, theirs_cpu, ours_wall, theirs_wall, *memory)


def _rates(trainer: Callable[[int], object], steps: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    trainer(steps)
    return steps / (time.process_time() - cpu), steps / (time.perf_counter() - wall)


def _peak_memory(case: Case, side: str) -> int:
    """Peak resident memory of one side alone in a fresh process, MiB."""
    command = [sys.executable, "-c", MEMORY, case.name, side]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
