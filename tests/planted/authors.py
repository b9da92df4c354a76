"""Bugs of plugin authors, written without reading the clauses, 2026-11-30.

They change fresh packages of `rlsdk new` and the example plugins. Their ideas are from papers and from bug reports of
public libraries. The open half may be read by those who write clauses. The closed half may only be run: it measures what
the kit finds without such reading. A shuffle of each family with the seed 64 made the halves.

`python -m tests.planted --half open` runs the kit on one half. `python -m tests.planted.effects` shows that each bug changes
what an agent does.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.planted.bug import Bug

HALVES = ("open", "closed")


@dataclass(frozen=True)
class Written:
    """A bug that was written for one of the halves."""

    bug: Bug
    family: str
    """The family of the algorithm, as in its manifest."""
    idea: str
    """The mistake; no two bugs of a family have the same, and at most four of all families."""
    half: str
    """One of `HALVES`."""
    why: str
    """Why the code is wrong, for a reader of the paper."""


def _written() -> tuple[Written, ...]:
    rows = tomllib.loads(Path(__file__).with_name("authors.toml").read_text())["bugs"]
    return tuple(
        Written(
            Bug(
                id=f"{row['algorithm'].removeprefix('planted-')}-{row['idea']}",
                **{name: row[name] for name in ("algorithm", "kind", "file", "old", "new")},
            ),
            **{name: row[name] for name in ("family", "idea", "half", "why")},
        )
        for row in rows
    )


WRITTEN: tuple[Written, ...] = _written()


def half(name: str) -> tuple[Bug, ...]:
    """The bugs of one of the `HALVES`."""
    return tuple(each.bug for each in WRITTEN if each.half == name)
