"""What was found, as it is stored: one entry for each bug."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.planted import BUGS
from tests.planted.bug import Bug

STORED = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Result:
    """What became of one bug."""

    digest: str
    """Of the bug that was planted."""
    clause: str | None
    """The first clause that failed; None: none did."""
    detail: str
    """Its message, or why there is none."""
    kit: str = ""
    """Of the kit that looked."""


def kit_digest() -> str:
    """Of the sources of the kit."""
    sources = sorted(
        (Path(__file__).parents[2] / "rlsdk/testing").glob("*.py")
    )  # its import would hide the copies' modules
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def stored() -> dict[str, Result]:
    """By the id of the bug."""
    return {name: Result(**entry) for name, entry in json.loads(STORED.read_text()).items()} if STORED.exists() else {}


def store(results: Mapping[str, Result]) -> None:
    """Write the results of the bugs there are, in their order."""
    entries = {bug.id: asdict(results[bug.id]) for bug in BUGS if bug.id in results}
    STORED.write_text(json.dumps(entries, indent=1) + "\n")


def is_current(bug: Bug, results: Mapping[str, Result]) -> bool:
    """Whether there is a result, and it is of this bug."""
    return bug.id in results and results[bug.id].digest == bug.digest
