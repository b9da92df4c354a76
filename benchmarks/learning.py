"""The returns of agents with the presets of their packages, and of the peers with the same settings and seeds.

rlsdk run sac --env Pendulum-v1 --seeds 5 --jobs 1 --out runs/sac    train
python -m benchmarks.learning add runs/sac                           write the returns into contrib_algos/rlsdk-sac/results.json
python -m benchmarks.learning peer sac Pendulum-v1 --seeds 5         the same with stable-baselines3 or sb3-contrib
python -m benchmarks.learning pages                                  write the tables of the pages of results and of the cards
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import rlsdk
from benchmarks.arguments import positive
from benchmarks.marked import replaced
from benchmarks.trained_peer import EPISODES, trained_peer
from rlsdk.registry import preset
from rlsdk_lab import estimate, load_suite, mean, suites
from rlsdk_zoo.make import has_preset

ROOT = Path(__file__).parents[1]
PAGE, SEEDS_PAGE = ROOT / "docs" / "results.md", ROOT / "docs" / "results-by-seed.md"
BEGIN, END = "<!-- measured by python -m benchmarks.learning -->\n", "<!-- end of results -->"
FAMILIES = {
    "Policy gradients": ("ppo", "a2c", "trpo", "maskable-ppo", "recurrent-ppo", "acktr", "acer"),
    "Q-learning": ("dqn", "qrdqn", "discrete-sac", "pqn"),
    "Continuous control with a replay buffer": ("sac", "td3", "tqc", "crossq", "ddpg"),
    "Random search": ("ars",),
    "Imitation": ("gail",),
}
"""The tables of docs/results.md -> their algorithms."""
# a telephone shows the first three columns
COLUMNS = ("algorithm", "environment", "rlsdk", "sb3", "steps", "reported elsewhere")
SEEDS_COLUMNS = ("algorithm", "environment", "rlsdk", "sb3", "episodes", "time of a run", "command")
CARD_HEAD = """| environment | steps | mean over seeds | per seed | sb3 or sb3-contrib, same settings |
|---|---|---|---|---|
"""
Results = dict[str, dict[str, Any]]
"""Environment -> "ours" and "peer" -> steps, episodes, minutes, seeds (seed -> return) and further entries.

Optional entries are `time` instead of minutes, `command` if `rlsdk run` does not repeat the row, `elsewhere` for a return
that no suite has, and `settings` for a peer that had other settings than the preset.
"""


def store(algorithm: str) -> Path:
    """The file with the results of an algorithm's package."""
    (package,) = ROOT.glob(f"*/rlsdk-{algorithm}")
    return package / "results.json"


def known(algorithm: str) -> Results:
    """Read the stored results of an algorithm."""
    path = store(algorithm)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def measured() -> list[str]:
    """The algorithms with results, sorted."""
    return sorted(path.parent.name.removeprefix("rlsdk-") for path in ROOT.glob("*/rlsdk-*/results.json"))


def write(algorithm: str, env: str, measure: str, found: Mapping[str, Any]) -> None:
    """Store `found` for an environment. Earlier seeds with the same number of steps are not removed."""
    results = known(algorithm)
    row = results.setdefault(env, {})
    before = row.get(measure, {})
    same = before.get("steps") == found["steps"]
    row[measure] = {**found, "seeds": {**(before["seeds"] if same else {}), **found["seeds"]}}
    text = json.dumps({name: results[name] for name in sorted(results)}, indent=1)
    store(algorithm).write_text(f"{text}\n", encoding="utf-8")


def add(folder: Path, variant: str | None = None) -> None:
    """Store the finished seeds of a folder of `rlsdk run --seeds`. `variant`: their preset, if it is not that of the
    environment."""
    paths = sorted(folder.glob("seed-*/run.json"))
    runs = {path.parent: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    finished = [run for run in runs.values() if run["status"] == "finished"]
    if not finished:
        raise SystemExit(f"{folder} has no finished seed")
    first = finished[0]
    name = variant or first["env"]
    for place, run in runs.items():
        if run["status"] == "finished" and not _has_preset(place, first["algorithm"], name):
            raise SystemExit(f"{place} has other settings than the preset {name} of {first['algorithm']}")
    found = {
        "steps": first["env_steps"],
        "episodes": first["final_evaluation"]["episodes"],
        "minutes": round(float(np.mean([run["seconds"] for run in finished])) / 60, 1),
        "date": time.strftime("%Y-%m-%d"),
        "seeds": {str(run["seed"]): round(run["final_evaluation"]["mean"], 1) for run in finished},
    }
    write(first["algorithm"], name, "ours", found)


def _has_preset(folder: Path, algorithm: str, name: str) -> bool:
    """Whether a run had the settings of a preset."""
    known = preset(algorithm, name)
    return known is not None and has_preset(rlsdk.load(folder / "final.rlsdk").config, known)


def peer(
    algorithm: str, env: str, seeds: range, steps: int | None, keep: Path | None = None, variant: str | None = None
) -> None:
    """Train the peer with the preset, seed after seed, and store the returns. Seeds with stored results for the same number
    of steps are left out.

    keep: a folder for unfinished trainings. None: an interrupted training starts again.
    variant: the preset, if it is not that of the environment.
    """
    name = variant or env
    found_preset = preset(algorithm, name)
    if found_preset is None:
        raise SystemExit(f"{algorithm} has no preset {name}")
    total = steps or found_preset.steps
    for seed in seeds:
        before = known(algorithm).get(name, {}).get("peer", {})
        if before.get("steps") == total and str(seed) in before["seeds"]:
            print(f"the peer of {algorithm} on {name}, seed {seed}: known, {before['seeds'][str(seed)]}", flush=True)
            continue
        began = time.process_time()
        place = keep / f"{algorithm}-{name}-{seed}" if keep else None
        size = found_preset.n_envs or 1, total
        reached = trained_peer(algorithm, env, seed, found_preset.settings, size, place)
        found = {
            "steps": total,
            "episodes": EPISODES,
            "minutes": round((time.process_time() - began) / 60, 1),
            "date": time.strftime("%Y-%m-%d"),
            "version": version("stable-baselines3"),
            "seeds": {str(seed): round(reached, 1)},
        }
        write(algorithm, name, "peer", found)
        if place:
            shutil.rmtree(place, ignore_errors=True)
        print(f"the peer of {algorithm} on {name}, seed {seed}: {reached:.1f}", flush=True)


# --- pages -----------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 20 else f"{value:.1f}"


def _per_seed(row: Mapping[str, Any]) -> str:
    return ", ".join(_number(row["seeds"][seed]) for seed in sorted(row["seeds"], key=int))


def _each_seed(row: Mapping[str, Any]) -> str:
    """The returns as they are stored."""
    return ", ".join(f"{row['seeds'][seed]:.1f}".removesuffix(".0") for seed in sorted(row["seeds"], key=int))


def _mean(row: Mapping[str, Any]) -> str:
    return _number(float(np.mean(list(row["seeds"].values()))))


def _interval(row: Mapping[str, Any]) -> str:
    """The mean over seeds with its bootstrap interval."""
    found = estimate([np.array(list(row["seeds"].values()))], mean)
    if len(row["seeds"]) == 1:
        return _number(found.value)
    return f"**{_number(found.value)}** [{_number(found.low)} .. {_number(found.high)}]"


def reported() -> dict[tuple[str, str], str]:
    """(algorithm, environment) -> the return that others report, from the packages' suites."""
    cells = [cell for name in suites() for cell in load_suite(name).cells if cell.documented]
    return {
        (c.algorithm, c.env): f"{_number(c.documented[0])} ± {_number(c.documented[1])} ({_source(c.source)})"
        for c in cells
        if c.documented
    }


def _source(text: str) -> str:
    """Who reports a return: sb3-contrib, unless the text of the suite names someone."""
    named = any(name in text for name in ("rl-baselines", "Tianshou", "sb3-contrib"))
    return text if named else ", ".join(filter(None, ("sb3-contrib's documentation", text)))


def _environment(name: str) -> str:
    """The environment of a preset; a preset with a name of its own is named too."""
    env, _, variant = re.fullmatch(r"(.*?-v\d+)(-(.+))?", name).groups("")  # type: ignore[union-attr]
    return f"{env}, preset {variant}" if variant else env


def _rows(columns: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables() -> str:
    """The tables of docs/results.md: one for each family."""
    elsewhere, text = reported(), ""
    for family, algorithms in FAMILIES.items():
        lines = []
        for algorithm, (env, row) in ((name, each) for name in algorithms for each in known(name).items()):
            ours, theirs = row["ours"], row.get("peer")
            peer = (
                f"{_mean(theirs)} (its settings)"
                if theirs and "settings" in theirs
                else _mean(theirs)
                if theirs
                else ""
            )
            others = ours.get("elsewhere") or elsewhere.get((algorithm, env), "")
            steps = f"{ours['steps']:,}"
            lines.append((f"`{algorithm}`", _environment(env), _interval(ours), peer, steps, others))
        text += f"## {family}\n\n{_rows(COLUMNS, lines)}\n"
    return text


def seeds_table() -> str:
    """The table of docs/results-by-seed.md."""
    lines = []
    for algorithm, (env, row) in ((name, each) for name in sum(FAMILIES.values(), ()) for each in known(name).items()):
        ours, theirs = row["ours"], row.get("peer")
        first = min(map(int, ours["seeds"]))
        seeds = _each_seed(ours) + (f" (from seed {first} on)" if first else "")
        peer = _each_seed(theirs) + (f" ({theirs['settings']})" if "settings" in theirs else "") if theirs else ""
        time = ours.get("time") or (f"{ours['minutes']} min" if "minutes" in ours else "")
        command = f"`{ours['command']}`" if "command" in ours else ""
        lines.append((f"`{algorithm}`", _environment(env), seeds, peer, str(ours.get("episodes", "")), time, command))
    return _rows(SEEDS_COLUMNS, lines)


def card(algorithm: str) -> str:
    """The table of results in a package's README."""
    lines = []
    for env, row in known(algorithm).items():
        ours, theirs = row["ours"], row.get("peer")
        beside = f"{_mean(theirs)} ({_per_seed(theirs)})" if theirs else ""
        lines.append(f"| {env} | {ours['steps']:,} | {_interval(ours)} | {_per_seed(ours)} | {beside} |\n")
    return CARD_HEAD + "".join(lines)


def with_table(text: str, rows: str) -> str:
    """Return a page with its table of results replaced by `rows`."""
    return replaced(text, BEGIN.strip(), END, rows.strip("\n"))


def pages() -> dict[Path, str]:
    """Every page with a table of results -> its text with the current table."""
    readmes = {algorithm: store(algorithm).parent / "README.md" for algorithm in measured()}
    # the cards of the other packages compare more settings than presets, so people write their tables
    cards = {path: card(name) for name, path in readmes.items() if BEGIN in path.read_text(encoding="utf-8")}
    found = {PAGE: tables(), SEEDS_PAGE: seeds_table(), **cards}
    return {path: with_table(path.read_text(encoding="utf-8"), rows) for path, rows in found.items()}


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add")
    adding.add_argument("runs", nargs="+", type=Path)
    adding.add_argument("--preset", help="the preset that the runs had, if not that of their environment")
    other = commands.add_parser("peer")
    other.add_argument("algorithm")
    other.add_argument("env")
    other.add_argument("--seeds", type=positive, default=5)
    other.add_argument("--first", type=int, default=0, help="the first seed")
    other.add_argument("--preset", help="if it is not that of the environment")
    other.add_argument("--steps", type=positive, help="instead of the preset's")
    other.add_argument("--keep", type=Path, help="a folder for unfinished trainings, to be continued")
    commands.add_parser("pages")
    options = parser.parse_args()
    if options.command == "add":
        for folder in options.runs:
            add(folder, options.preset)
    elif options.command == "peer":
        seeds = range(options.first, options.first + options.seeds)
        peer(options.algorithm, options.env, seeds, options.steps, options.keep, options.preset)
    else:
        for path, text in pages().items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
