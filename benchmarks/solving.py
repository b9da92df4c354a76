"""Seconds until a task is solved: rlsdk with its presets, the peers with the settings of rl-baselines3-zoo.

python -m benchmarks.solving [TASK ...] [--algorithms ppo ...] [--seeds 5]   # trains seeds that were not measured yet
python -m benchmarks.solving --sbx ~/sbx/bin/python CartPole-v1               # an interpreter that has SBX
python -m benchmarks.solving Hopper-v5 --seeds 1 --sides peer sbx --stop-at 3    # other libraries end at three times our time
python -m benchmarks.solving Hopper-v5 --seeds 1 --threads 2 --stop-at 2         # the same, with two threads
python -m benchmarks.solving --write                                          # the tables of docs/seconds-to-solve.md

Every training runs in a separate process, with one thread unless --threads is given. The sides train alternately, seed after
seed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.marked import replaced
from benchmarks.trainers import JAX_THREADS
from rlsdk.registry import preset

ROOT = Path(__file__).parents[1]
TASKS = Path(__file__).with_suffix(".toml")
DATA = ROOT / "docs" / "seconds-to-solve.json"
PAGE = DATA.with_suffix(".md")
BEGIN, END = "<!-- measured by python -m benchmarks.solving -->", "<!-- end of seconds -->"
EPISODES = 20
SIDES = ("ours", "peer", "sbx")
IN_SBX = ("PPO", "DQN", "SAC", "TQC", "TD3", "DDPG")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", JAX_THREADS)
COLUMNS = (
    *("task", "algorithm", "rlsdk: CPU seconds", "wall-clock", "steps", "peer: CPU seconds"),
    *("wall-clock", "steps", "SBX: CPU seconds", "wall-clock", "seeds", "faster than the next by"),
)
THREADED_COLUMNS = (
    *("task", "algorithm", "rlsdk: wall-clock seconds", "CPU seconds", "steps"),
    *("peer: wall-clock", "SBX: wall-clock", "seeds"),
)
"""The columns of the second table, which has the trainings with two threads."""
Outcome = dict[str, Any]
"""The result of one training: solved, cpu, wall, steps, return, date, versions."""
Results = dict[str, dict[str, dict[str, Outcome]]]
"""Task/algorithm -> side -> seed -> outcome. With more threads than one, the side is named by `threaded`."""


@dataclass(frozen=True)
class Entry:
    """One algorithm on one task, on every side."""

    task: str
    algorithm: str
    threshold: float
    every: int
    peer: str
    steps: int
    n_envs: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    env: str = ""
    """The environment, if it is not named as the task."""
    preset: str = ""
    vectorization: str = "sync"
    own_steps: int = 0
    """The environment steps of rlsdk; 0: those of the preset."""
    ours: bool = True
    """False: rlsdk solves the task sooner with another algorithm, and is not measured with this one."""

    @property
    def name(self) -> str:
        """The name under which results are stored."""
        return f"{self.task}/{self.algorithm}"

    @property
    def preset_name(self) -> str:
        """The name of the preset that rlsdk uses."""
        return self.preset or self.environment

    @property
    def environment(self) -> str:
        """The id of the environment."""
        return self.env or self.task

    @property
    def labels(self) -> tuple[str, str]:
        """The task, and the algorithm with its preset, as a table shows them."""
        preset = self.preset.removeprefix(self.environment)
        return self.task.removeprefix("rlsdk/"), f"`{self.algorithm}` {preset}".strip()

    def sides(self) -> tuple[str, ...]:
        """The sides that have the algorithm."""
        found = SIDES if self.peer.rpartition(".")[2] in IN_SBX else SIDES[:2]
        return found if self.ours else found[1:]

    def spec(self, side: str, seed: int, limit: float = math.inf, threads: int = 1) -> dict[str, Any]:
        """The description of one training, for benchmarks.solving_run. `limit`: processor seconds of other libraries."""
        shared = {"env": self.environment, "threshold": self.threshold, "every": self.every, "episodes": EPISODES}
        shared |= {"side": side, "seed": seed, "threads": threads}
        if side != "ours":
            shared |= {"limit": limit} if math.isfinite(limit) else {}
            name = self.peer if side == "peer" else f"sbx.{self.peer.rpartition('.')[2]}"
            theirs = {"steps": self.steps, "n_envs": self.n_envs, "settings": self.settings}
            return {**shared, "algorithm": name, **theirs}
        known = preset(self.algorithm, self.preset_name)
        if known is None:
            raise SystemExit(f"{self.algorithm} has no preset {self.preset_name}")
        own = {"steps": self.own_steps or known.steps, "n_envs": known.n_envs, "settings": known.settings}
        return {**shared, "algorithm": self.algorithm, "vectorization": self.vectorization, **own}


def entries() -> list[Entry]:
    """All entries, in the order of the file."""
    found = []
    for task, table in tomllib.loads(TASKS.read_text(encoding="utf-8")).items():
        shared = {"task": task} | {key: table.pop(key) for key in ("env", "threshold", "every") if key in table}
        found += [Entry(algorithm=algorithm, **shared, **own) for algorithm, own in table.items()]
    return found


def stored() -> Results:
    """Read the stored results."""
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.exists() else {}


def store(entry: Entry, side: str, seed: int, outcome: Outcome) -> None:
    """Store the result of one training in the file."""
    results = stored()
    results.setdefault(entry.name, {}).setdefault(side, {})[str(seed)] = outcome
    lines = [f"{json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results)]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def run(spec: Mapping[str, Any], interpreter: str) -> Outcome:
    """Run one training in a separate process.

    Raises:
        SystemExit: the training failed.
    """
    command = [interpreter, "-m", "benchmarks.solving_run", json.dumps(spec)]
    env = {**os.environ, **dict.fromkeys(THREADS, str(spec["threads"]))}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{spec['algorithm']} on {spec['env']} failed: {done.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(
    chosen: list[Entry],
    seeds: range,
    interpreters: Mapping[str, str],
    *,
    again: bool = False,
    stop_at: float = math.inf,
    threads: int = 1,
) -> None:
    """Run the missing trainings. The file is written after every training.

    A training of another library stops after `stop_at` times the processor time in which rlsdk solves the task. With several
    threads, it stops after that multiple of our wall-clock time on all of its threads, so not earlier than that.
    """
    own, key = threaded("ours", threads), "cpu" if threads == 1 else "wall"
    for entry in chosen:
        for seed in seeds:
            for side in (side for side in entry.sides() if side in interpreters):
                name = threaded(side, threads)
                missing = str(seed) not in stored().get(entry.name, {}).get(name, {})
                if again or missing:
                    limit = stop_at * threads * fastest(entry.task, stored(), (own,), key)
                    outcome = run(entry.spec(side, seed, limit, threads), interpreters[side])
                    store(entry, name, seed, outcome)
                    shown = {each: outcome[each] for each in ("solved", "cpu", "wall", "steps", "return")}
                    print(entry.name, name, seed, shown, flush=True)


def threaded(side: str, threads: int) -> str:
    """The name under which the results of a side are stored."""
    return side if threads == 1 else f"{side}, {threads} threads"


# --- the table -------------------------------------------------------------------------------------------------------


def middle(outcomes: Mapping[str, Outcome], key: str) -> float:
    """The median over seeds; a seed that did not solve the task counts as infinite."""
    return median(outcome[key] if outcome["solved"] else math.inf for outcome in outcomes.values())


def fastest(task: str, results: Results, sides: tuple[str, ...], key: str = "cpu") -> float:
    """The smallest median of seconds in which one of `sides` solves the task, over all algorithms, or infinity."""
    measured = (found.get(side) for name, found in results.items() if name.startswith(f"{task}/") for side in sides)
    return min((middle(outcomes, key) for outcomes in measured if outcomes), default=math.inf)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def cells(outcomes: Mapping[str, Outcome]) -> list[str]:
    """The cells of one side: CPU seconds with their range, wall-clock seconds, and steps."""
    if not outcomes:
        return ["", "", ""]
    solved = [outcome for outcome in outcomes.values() if outcome["solved"]]
    of = f"{len(solved)} of {len(outcomes)} seeds"
    if not math.isfinite(middle(outcomes, "cpu")):
        spent = median(outcome["cpu"] for outcome in outcomes.values())
        end = "stopped after" if any(o.get("stopped") for o in outcomes.values()) else "in"
        return [f"not solved ({of}) {end} {_number(spent)}", "", f"{max(o['steps'] for o in outcomes.values()):,}"]
    spread = [outcome["cpu"] for outcome in solved]
    note = "" if len(solved) == len(outcomes) else f"; {of}"
    cpu = f"**{_number(middle(outcomes, 'cpu'))}** [{_number(min(spread))} .. {_number(max(spread))}{note}]"
    return [cpu, _number(middle(outcomes, "wall")), f"{middle(outcomes, 'steps'):,.0f}"]


def lead(own: Mapping[str, Outcome], rivals: Iterable[Mapping[str, Mapping[str, Outcome]]]) -> str:
    """The CPU seconds of the fastest of the other sides in `rivals` divided by those of `own`, as text."""
    others = [sides[side] for sides in rivals for side in SIDES[1:] if side in sides]
    ours = middle(own, "cpu") if own else math.inf
    if not others or not math.isfinite(ours):
        return ""
    best = min(middle(other, "cpu") for other in others)
    if math.isfinite(best):
        return f"{best / ours:.1f}x"
    stopped = [outcome["cpu"] for other in others for outcome in other.values() if outcome.get("stopped")]
    return f"over {min(stopped) / ours:.1f}x" if stopped else "no other solves it"


def rivals(entry: Entry, known: list[Entry], results: Results) -> list[dict[str, dict[str, Outcome]]]:
    """The results with which those of rlsdk are compared: of the entry, and of those of its task that rlsdk has no part in.

    There are none while one of the latter was not measured, as it could be the fastest.
    """
    others = [e for e in known if e.task == entry.task and not e.ours]
    wanted = [(e.name, side) for e in (entry, *others) for side in e.sides() if side != "ours"]
    if others and not all(side in results.get(name, {}) for name, side in wanted):
        return []
    return [results.get(e.name, {}) for e in (entry, *others)]


def rows(results: Results) -> Iterator[str]:
    """Yield the rows of the table. Where rlsdk is measured with one algorithm only, it is compared with all of the others."""
    known = entries()
    for entry in known:
        sides = results.get(entry.name)
        if sides:
            ours, peer, sbx = (cells(sides.get(side, {})) for side in SIDES)
            shown = [*entry.labels, *ours, *peer]
            seeds = ", ".join(str(len(sides[side])) for side in SIDES if side in sides)
            found = lead(sides.get("ours", {}), rivals(entry, known, results))
            yield f"| {' | '.join([*shown, *sbx[:2], seeds, found])} |"


def threaded_rows(results: Results) -> Iterator[str]:
    """Yield the rows of the table of trainings with two threads."""
    for entry in entries():
        sides = [results.get(entry.name, {}).get(threaded(side, 2), {}) for side in SIDES]
        if any(sides):
            wall, cpu, steps = [""] * 3
            if own := sides[0]:
                wall, cpu, steps = wall_cell(own), _number(middle(own, "cpu")), f"{middle(own, 'steps'):,.0f}"
            seeds = ", ".join(str(len(outcomes)) for outcomes in sides if outcomes)
            yield f"| {' | '.join([*entry.labels, wall, cpu, steps, *map(wall_cell, sides[1:]), seeds])} |"


def wall_cell(outcomes: Mapping[str, Outcome]) -> str:
    """The median of wall-clock seconds, or after how many of them the training ended without solving the task."""
    if not outcomes:
        return ""
    found = middle(outcomes, "wall")
    if math.isfinite(found):
        return f"**{_number(found)}**"
    return f"not solved in {_number(median(outcome['wall'] for outcome in outcomes.values()))}"


def table(results: Results) -> str:
    """The tables of one and of two threads, with the dates and versions above them."""
    outcomes = [o for sides in results.values() for seeds in sides.values() for o in seeds.values()]
    found = {pair for outcome in outcomes for pair in outcome["versions"].items()}
    known = ", ".join(f"{name} {number}" for name, number in sorted(found))
    dates = sorted({outcome["date"] for outcome in outcomes})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    text = [f"Measured {when}: {known}", "", *header(COLUMNS), *rows(results)]
    if more := list(threaded_rows(results)):
        text += ["", "With two threads, on a machine that did nothing else:", "", *header(THREADED_COLUMNS), *more]
    return "\n".join(text)


def header(columns: tuple[str, ...]) -> list[str]:
    """The first two lines of a table."""
    return [f"| {' | '.join(columns)} |", f"{'|---' * len(columns)}|"]


def main() -> None:
    """Parse the command line."""
    known = entries()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solving", description=__doc__)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(dict.fromkeys(e.task for e in known))}")
    parser.add_argument("--algorithms", nargs="+", help="only these")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--seeds", type=int, default=0, help="how many; none without: nothing is trained")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--stop-at", type=float, default=math.inf, metavar="FACTOR", help="end others at FACTOR times our time"
    )
    parser.add_argument("--threads", type=int, choices=(1, 2), default=1, help="of every training (default: 1)")
    parser.add_argument("--again", action="store_true", help="replace what was measured")
    parser.add_argument("--sbx", metavar="PYTHON", help="an interpreter with SBX; without one its cells stay empty")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/seconds-to-solve.md")
    options = parser.parse_args()
    chosen = [e for e in known if not options.tasks or e.task in options.tasks]
    chosen = [e for e in chosen if not options.algorithms or e.algorithm in options.algorithms]
    if not chosen:
        parser.error("no such task or algorithm")
    interpreters = {side: sys.executable for side in options.sides if side != "sbx"}
    if options.sbx and "sbx" in options.sides:
        interpreters["sbx"] = options.sbx
    seeds = range(options.first, options.first + options.seeds)
    given = {key: getattr(options, key) for key in ("again", "stop_at", "threads")}
    measure(chosen, seeds, interpreters, **given)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replaced(page, BEGIN, END, table(stored())), encoding="utf-8")


if __name__ == "__main__":
    main()
