"""Times trainers alternately, in the order A B C, C B A, ..., and gives medians and ranges of the ratios of their speeds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks.cases import CASES, Case
from benchmarks.floor import floor
from benchmarks.trainers import Elsewhere, Timing, Trainer
from rlsdk.runtime import limited_threads

MEMORY = """
import json
import sys
import torch
torch.set_num_threads(1)
from benchmarks.cases import Case
case = Case(**json.loads(sys.argv[1]))
getattr(case, sys.argv[2])(0)(case.chunk)
status = open("/proc/self/status").read()  # ru_maxrss would include what the parent held when it forked
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


@dataclass(frozen=True)
class Comparison:
    """The speed of each side in each round, and the floor."""

    case: Case
    threads: int
    timings: dict[str, list[Timing]]
    """Side -> its timings: `ours`, `theirs` if there is a peer, and `sbx` if it is installed and has the algorithm."""
    floor: float | None
    """Environment steps per second of the bare environment and the bare matrix products; None if the user changed sizes."""
    mib: dict[str, int]
    """The peak memory of each side, in MiB."""

    def rates(self, side: str) -> list[float]:
        """Steps per second in each round: of processor time, or of wall-clock time if worker processes step environments."""
        return [timing.wall if self.case.workers else timing.cpu for timing in self.timings[side]]

    def ratio(self, side: str) -> str:
        """The ratio of rlsdk's speed to that of `side`, as text."""
        if side not in self.timings:
            return ""
        if not self.case.workers:
            return self._ratio(self.rates("ours"), self.rates(side))
        ours, theirs = ([timing.cpu for timing in self.timings[name]] for name in ("ours", side))
        by_the_clock = self._ratio(self.rates("ours"), self.rates(side))
        return f"{by_the_clock}; {self._ratio(ours, theirs)} of all processes' processor time"

    def _ratio(self, ours: list[float], theirs: list[float]) -> str:
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        return f"**{statistics.median(ratios):.2f}x** [{min(ratios):.2f} .. {max(ratios):.2f}]"

    def update(self, side: str) -> str:
        """The share of updates in the time of `side`, as text."""
        shares = [timing.update for timing in self.timings.get(side, []) if timing.update is not None]
        return f"{statistics.median(shares):.0%}" if shares and not self.case.workers else ""

    def row(self) -> str:
        """One line of the table."""
        ours = statistics.median(self.rates("ours"))
        theirs = f"{statistics.median(self.rates('theirs')):.1f}" if "theirs" in self.timings else ""
        cells = [self.case.name, self.threads, f"{ours:.1f}", theirs, self.ratio("theirs"), self.ratio("sbx")]
        cells += [f"{self.floor:.0f}", f"{ours / self.floor:.0%}"] if self.floor else ["", ""]
        cells += [self.update("ours"), self.update("theirs"), self.mib["ours"], self.mib.get("theirs", "")]
        return "| " + " | ".join(str(cell) for cell in cells) + " |"


COLUMNS = (
    *(
        "case",
        "threads",
        "rlsdk, steps/s",
        "peer, steps/s",
        "rlsdk over peer, median [range]",
        "over SBX",
        "floor, steps/s",
    ),
    *("rlsdk of floor", "update, rlsdk", "update, peer", "rlsdk, MiB", "peer, MiB"),
)
HEADER = "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|"


def compare(case: Case, *, rounds: int, threads: int, seed: int = 0) -> Comparison:
    """Time all sides alternately, `rounds` times. Only SBX runs in another process."""
    with limited_threads(threads):
        timings = _timings(case, rounds, threads, seed)
    memory = {side: _peak_memory(case, side) for side in timings if side != "sbx"}
    known = CASES[case.name]
    as_shipped = threads == 1 and not case.workers and (case.settings, case.n_envs) == (known.settings, known.n_envs)
    return Comparison(case, threads, timings, floor(case) if as_shipped else None, memory)


def _timings(case: Case, rounds: int, threads: int, seed: int) -> dict[str, list[Timing]]:
    """Measure the timings of each side, as side -> timings."""
    sides: dict[str, Trainer | Elsewhere] = {"ours": case.ours(seed)}
    if case.peer:
        sides["theirs"] = case.theirs(seed)
    if case.sbx_class() is not None:
        sides["sbx"] = Elsewhere(partial(case.sbx, seed), threads)
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    for turn in range(rounds):
        order = list(sides) if turn % 2 == 0 else list(reversed(sides))
        for name in order:
            timings[name].append(sides[name](case.chunk))
    for side in sides.values():
        if isinstance(side, Elsewhere):
            side.close()
    return timings


def _peak_memory(case: Case, side: str) -> int:
    """Peak resident memory of one side alone in a fresh process, MiB."""
    command = [sys.executable, "-c", MEMORY, json.dumps(asdict(case)), side]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
