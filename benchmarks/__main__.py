"""`python -m benchmarks [CASE ...]`: measure, print and write the table of docs/performance.md."""

from __future__ import annotations

import argparse
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.arguments import positive, share
from benchmarks.cases import CASES, Case
from benchmarks.compare import HEADER, compare
from rlsdk.errors import RlsdkError
from rlsdk.settings import merge, parse_assignments
from rlsdk_kernels import compiled_library

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "performance.md"
LANDING_PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
MARK = "<!-- measured by python -m benchmarks -->"
PACKAGES = ("rlsdk", "stable-baselines3", "sb3-contrib", "torch", "gymnasium")


def _resized(case: Case, options: argparse.Namespace) -> Case:
    """Replace the sizes and settings of a case by those of the command line."""
    settings = merge(case.settings, parse_assignments(options.set))
    sizes = {name: getattr(options, name) or getattr(case, name) for name in ("warmup", "chunk", "n_envs")}
    return replace(case, settings=settings, **sizes)


def main() -> None:
    """Parse the command line and run the cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--rounds", type=positive, default=7, help="how often each side is timed")
    parser.add_argument("--warmup", type=positive, help="environment steps before the first timing")
    parser.add_argument("--chunk", type=positive, help="environment steps per timing")
    parser.add_argument("--threads", type=positive, default=1, help="torch threads of both sides")
    parser.add_argument("--write", action="store_true", help="replace the rows in docs/performance.md")
    parser.add_argument("--n-envs", type=positive, help="environments of both sides")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of both sides")
    parser.add_argument(
        "--at-least",
        type=share,
        metavar="SHARE",
        help="fail where ours over the peer is below this share of the recorded ratio",
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.cases) - set(CASES)):
        parser.error(f"unknown cases {unknown}; there are {sorted(CASES)}")
    try:
        cases = {name: _resized(CASES[name], options) for name in options.cases or CASES}
    except RlsdkError as error:
        parser.error(str(error))
    print(HEADER, flush=True)
    recorded, measured = _recorded(), {}
    for name, case in cases.items():
        measured[name] = compare(case, rounds=options.rounds, threads=options.threads).row()
        print(measured[name], flush=True)
        if options.write:
            _write(name, measured[name], options.rounds)
    if options.at_least and (slower := fallen(measured, recorded, options.at_least)):
        sys.exit("\n".join(slower))


def fallen(measured: Mapping[str, str], recorded: Mapping[str, str], share: float) -> list[str]:
    """A line for each case whose ratio over the peer is below `share` of the recorded ratio. Both map a case to its row.

    Ratios depend less on the machine than speeds do. They still differ by a fifth between days.
    """
    lines = []
    for name, row in measured.items():
        now, before = _ratio(row), _ratio(recorded.get(name, ""))
        if now is not None and before is not None and now < share * before:
            lines.append(f"{name}: {now:.2f}x of the peer is below {share:.0%} of the recorded {before:.2f}x")
    return lines


def _ratio(row: str) -> float | None:
    """The ratio of rlsdk to the peer in a row of the table; None if the row has no peer. Its first ratio may be that of SBX."""
    columns = row.split("|")
    found = re.search(r"\*\*([\d.]+)x", columns[5]) if len(columns) > 5 else None
    return float(found[1]) if found else None


def _recorded() -> dict[str, str]:
    """The rows of docs/performance.md, as case -> row."""
    _, _, table = TABLE.read_text(encoding="utf-8").partition(MARK)
    return {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}


def _write(name: str, row: str, rounds: int) -> None:
    """Replace one row of the table. The other rows, each with its date, do not change."""
    before, _, _ = TABLE.read_text(encoding="utf-8").partition(MARK)
    known = {**_recorded(), name: f"{row} {time.strftime('%Y-%m-%d')}, {rounds} rounds, {compiled_library.maker()} |"}
    versions = ", ".join(f"{p} {version(p)}" for p in PACKAGES)
    rows = [known[case] for case in CASES if case in known]
    header = "\n".join(f"{line}{end}" for line, end in zip(HEADER.split("\n"), (" measured |", "---|"), strict=True))
    joined = "\n".join(rows)
    page = f"{before}{MARK}\n\n{versions}, Python {platform.python_version()}\n\n{header}\n{joined}\n"
    TABLE.write_text(page, encoding="utf-8")
    _write_summary({case: ratio for case, row in known.items() if (ratio := _ratio(row)) is not None})


def _write_summary(ratios: Mapping[str, float]) -> None:
    """Put the median, the count and the smallest of the cases' ratios into the two landing pages, and the range of each
    algorithm into the table of algorithms."""
    middle, least = median(ratios.values()), min(ratios.values())
    for path in LANDING_PAGES:
        page = path.read_text(encoding="utf-8")
        page = re.sub(r"\*\*[\d.]+ times as fast\*\*", f"**{middle:.1f} times as fast**", page)
        page = re.sub(r"about \d+ times as fast", f"about {middle:.0f} times as fast", page)
        page = re.sub(r"median of \d+ measured", f"median of {len(ratios)} measured", page)
        page = re.sub(r"slowest case is [\d.]+ times", f"slowest case is {least:.1f} times", page)
        for algorithm in {CASES[case].algorithm for case in ratios}:
            own = [ratio for case, ratio in ratios.items() if CASES[case].algorithm == algorithm]
            page = re.sub(rf"(\| `{algorithm}` \|.*\| )[\d.]+( to [\d.]+)? times", rf"\g<1>{_range(own)} times", page)
        path.write_text(page, encoding="utf-8")


def _range(ratios: Iterable[float]) -> str:
    """The smallest and the largest of some ratios."""
    ordered = sorted(ratios)
    least, most = f"{ordered[0]:.1f}", f"{ordered[-1]:.1f}"
    return least if least == most else f"{least} to {most}"


if __name__ == "__main__":
    main()
