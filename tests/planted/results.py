"""The stored results of the searches, one for each bug."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from tests.planted import BUGS, fresh
from tests.planted.bug import Bug

STORED = Path(__file__).parent / "results.json"
STORED_FRESH = Path(__file__).parent / "fresh_results.json"
STORED_AUTHORS = Path(__file__).parent / "authors_results.json"


@dataclass(frozen=True)
class Result:
    """The result of the search for one bug."""

    digest: str
    """The digest of the bug, `Bug.digest`."""
    clause: str | None
    """The id of the first clause that failed; None if none failed."""
    detail: str
    """The message of the clause that failed, or the reason why none failed."""
    kit: str = ""
    """The digest of the kit that looked for the bug, `kit_digest()`."""


def kit_digest() -> str:
    """The digest of the kit's sources."""
    # importing the kit would hide the modules of the copies
    sources = sorted((Path(__file__).parents[2] / "plugins/rlsdk-testing/src/rlsdk_testing").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def stored(path: Path = STORED) -> dict[str, Result]:
    """Id of a bug -> its stored result."""
    return {name: Result(**entry) for name, entry in json.loads(path.read_text()).items()} if path.exists() else {}


def store(results: Mapping[str, Result]) -> None:
    """Write the results of all present bugs, in the order of `BUGS`, and those of the fresh bugs in a file of their own."""
    for path, bugs in ((STORED, BUGS), (STORED_FRESH, fresh.BUGS)):
        entries = {bug.id: asdict(results[bug.id]) for bug in bugs if bug.id in results}
        path.write_text(json.dumps(entries, indent=1) + "\n")


@dataclass(frozen=True)
class Run:
    """A run of the kit on a half of the bugs of `tests.planted.authors`."""

    date: str
    """The day of its last search."""
    results: dict[str, Result]
    """Id of a bug -> its result."""


def stored_runs() -> dict[str, Run]:
    """Name of a run -> its stored results: a half, or a half and when, such as "open, first"."""
    content = json.loads(STORED_AUTHORS.read_text()) if STORED_AUTHORS.exists() else {}
    return {
        name: Run(run["date"], {bug: Result(**entry) for bug, entry in run["results"].items()})
        for name, run in content.items()
    }


def store_run(name: str, results: Mapping[str, Result]) -> None:
    """Add results to the run `name`. They replace those of the same bugs."""
    runs = stored_runs()
    before = runs[name].results if name in runs else {}
    runs[name] = Run(date.today().isoformat(), {**before, **results})
    STORED_AUTHORS.write_text(json.dumps({key: asdict(run) for key, run in sorted(runs.items())}, indent=1) + "\n")


def without(half: str, clauses: Sequence[str]) -> str:
    """The name of the run of a half in which these clauses are left out."""
    return f"{half}, without {', '.join(clauses)}"


def is_current(bug: Bug, results: Mapping[str, Result]) -> bool:
    """Whether there is a result for this bug, and for its present text."""
    return bug.id in results and results[bug.id].digest == bug.digest
