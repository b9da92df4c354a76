"""The page docs/planted-bugs.md, made from the stored results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.planted import BUGS, authors, fresh
from tests.planted.bug import Bug
from tests.planted.kinds import TITLES
from tests.planted.reasons import REASONS
from tests.planted.results import STORED_FRESH, Result, Run, stored, stored_runs, without

PAGE = Path(__file__).parents[2] / "docs" / "planted-bugs.md"
UNTRIED = "not tried yet"
HEAD = """# What the kit finds

{honest}

## The list that was known

The contract kit was tried on {total} further bugs of the kind that outside authors make. Each bug was planted alone: into the
sources of plugins, of the examples in `examples/third_party` and of the packages of `rlsdk new`, or into parts of the core
that these use. Clauses were written while this list was known, so it does not measure what the kit finds in your package.
The kit finds {found} of {total} ({share}); {untried} were not tried yet. No bug stops a package from loading.
{kits}, with kernels off. Generated: `python -m tests.planted`; the bugs are data in `tests/planted`.

| kind | found | planted |
|---|---|---|
"""


def page(results: Mapping[str, Result]) -> str:
    """The text of docs/planted-bugs.md for these results."""
    found = [bug for bug in BUGS if _clause(bug, results)]
    share = f"{len(found) / len(BUGS):.0%}"
    untried = sum(bug.id not in results or results[bug.id].detail == UNTRIED for bug in BUGS)
    counts = {"total": len(BUGS), "found": len(found), "share": share, "untried": untried}
    lines = [HEAD.format(**counts, honest="\n".join(_honest(stored_runs())), kits=_kits(results)).rstrip()]
    for kind, title in TITLES.items():
        planted = [bug for bug in BUGS if bug.kind == kind]
        lines.append(f"| {title} | {sum(bug in found for bug in planted)} | {len(planted)} |")
    lines += ["", "## Not found", "", *_missed([bug for bug in BUGS if bug not in found], results)]
    lines += ["", "## Found", "", "| bug | planted for | file | found by |", "|---|---|---|---|"]
    lines += [f"| {bug.id} | `{bug.algorithm}` | `{bug.file}` | `{_clause(bug, results)}` |" for bug in found]
    return "\n".join([*lines, *_fresh(stored(STORED_FRESH))]) + "\n"


HONEST = """This page does not show that a plugin without a finding has no bug.

{total} bugs were written by somebody who had not read the clauses, for fresh packages of `rlsdk new` and for the examples in
`examples/third_party`. Their ideas are from papers and from bug reports of public libraries. They have two halves. The open
half was run before any clause was changed for it, and then clauses were improved while it was looked at. The closed half was
not looked at: its number is the one to expect for bugs of your package. A search that takes more than 150 s counts as a miss.
`python -m tests.planted --half closed --store` runs a half and stores its results; the bugs are data in
`tests/planted/authors.toml`.

| half | run | found | share |
|---|---|---|---|"""
RUNS = {
    "open, first": ("open", "before clauses were changed for it"),
    "open": ("open", "after"),
    "closed": ("closed", "never looked at"),
}
"""Name of a stored run -> its half, and the words of the page about it."""


def honest_number() -> str:
    """What the kit finds of the closed half, such as "60 of 84 (71%)"; until it is run, of the open half at first."""
    runs = stored_runs()
    name = "closed" if "closed" in runs else "open, first"
    bugs = authors.half(RUNS[name][0])
    found = sum(_clause(bug, runs[name].results) is not None for bug in bugs)
    return f"{found} of {len(bugs)} ({found / len(bugs):.0%})"


FORMULA = """
Of the closed half, `formula.reference` found {formula} bugs first. It needs the file `reference.py`, which states the formula
of an update and which `rlsdk new` writes. {others}"""
UNMEASURED = (
    "How many of these the other clauses would find was not measured, so a package without this file gets less."
)
MEASURED = """{tried} of these bugs were
tried again without that clause, and other clauses found {found} of them. So the kit finds fewer bugs of a package without this
file."""


def _honest(runs: Mapping[str, Run]) -> Iterator[str]:
    yield HONEST.format(total=len(authors.WRITTEN))
    for name, (half, what) in RUNS.items():
        bugs = authors.half(half)
        if name not in runs:
            yield f"| {half} | {what} | not run yet | |"
            continue
        found = sum(_clause(bug, runs[name].results) is not None for bug in bugs)
        yield f"| {half} | {what}, {runs[name].date} | {found} of {len(bugs)} | {found / len(bugs):.0%} |"
    formula = sum(_clause(bug, runs["closed"].results) == "formula.reference" for bug in authors.half("closed"))
    yield FORMULA.format(formula=formula, others=_others(runs))
    reasons = {written.bug.id: written.why for written in authors.WRITTEN}
    for name in ("open", "closed"):
        if name in runs:
            missed = [bug for bug in authors.half(name) if _clause(bug, runs[name].results) is None]
            yield f"\nNot found in the {name} half:\n"
            yield from _missed(missed, {}, reasons)


def _others(runs: Mapping[str, Run]) -> str:
    """What clauses other than that about the formula find of the bugs that it found."""
    run = runs.get(without("closed", ["formula.reference"]))
    if run is None:
        return UNMEASURED
    return MEASURED.format(found=sum(each.clause is not None for each in run.results.values()), tried=len(run.results))


FRESH = """
## Bugs written before the clauses that look for them

The list above was known when clauses were written. {total} further bugs were written in one go before the clauses `count.*`,
`dose.*`, `formula.*`, `batch.rows-averaged`, `batch.duplicates`, `seeds.*`, `training.gradients-fresh` and
`policy.acting-changes-nothing`. A fixed seed split them into two halves. The clauses were improved while half A was looked at;
the kit ran on half B once, when they were finished. One author wrote both the bugs and the clauses, so half B is not as hard as
bugs of somebody who does not know the clauses. Most bugs of formulas in new packages are found by `formula.reference`: the
package's own `reference.py`, which `rlsdk new` writes, still has the right formula.

| half | found | planted |
|---|---|---|
"""


def _fresh(results: Mapping[str, Result]) -> Iterator[str]:
    yield FRESH.format(total=len(fresh.BUGS)).rstrip()
    for half, bugs in (("A", fresh.HALF_A), ("B", fresh.HALF_B)):
        yield f"| {half} | {sum(_clause(bug, results) is not None for bug in bugs)} | {len(bugs)} |"
    yield ""
    yield from _missed([bug for bug in fresh.BUGS if _clause(bug, results) is None], results)
    yield from ("", "| half | bug | planted for | found by |", "|---|---|---|---|")
    for half, bugs in (("A", fresh.HALF_A), ("B", fresh.HALF_B)):
        for bug in bugs:
            if (found := _clause(bug, results)) is not None:
                yield f"| {half} | {bug.id} | `{bug.algorithm}` | `{found}` |"


def _kits(results: Mapping[str, Result]) -> str:
    """The words of the page about the kit: the digest of its sources, or the number of different digests."""
    kits = sorted({results[bug.id].kit for bug in BUGS if bug.id in results})
    if len(kits) == 1:
        return f"One version of the kit looked for all bugs (the digest of its sources begins with {kits[0]})"
    return f"{len(kits)} versions of the kit looked for them, each version for some of the bugs"


def _missed(bugs: list[Bug], results: Mapping[str, Result], reasons: Mapping[str, str] = REASONS) -> Iterator[str]:
    if not bugs:
        yield "Nothing."
        return
    yield from ("| bug | planted for | file | why |", "|---|---|---|---|")
    for bug in bugs:
        detail = results[bug.id].detail if bug.id in results else UNTRIED
        yield f"| {bug.id} | `{bug.algorithm}` | `{bug.file}` | {reasons.get(bug.id, detail)} |"


def _clause(bug: Bug, results: Mapping[str, Result]) -> str | None:
    return results[bug.id].clause if bug.id in results else None
