"""The catalog of planted bugs: each fits the current sources, and docs/planted-bugs.md shows which the kit finds."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
import tomllib

import pytest

from tests.planted import BUGS, fresh
from tests.planted.bug import Bug
from tests.planted.copies import ROOT
from tests.planted.kinds import KINDS, TITLES
from tests.planted.looking import LOADING
from tests.planted.page import PAGE, page
from tests.planted.reasons import REASONS
from tests.planted.results import STORED_FRESH, is_current, stored
from tests.tables import in_one_test

WANTED = 150
"""The least number of bugs in the catalog."""
FOUND = 0.85
"""The least share of the bugs that the kit finds."""
SAMPLE = 12


@in_one_test
@pytest.mark.parametrize("bug", [*BUGS, *fresh.BUGS], ids=lambda bug: bug.id)
def test_a_bug_fits_the_sources(bug: Bug) -> None:
    text = bug.planted_in((ROOT / bug.file).read_text())
    if bug.file.endswith(".py"):
        ast.parse(text)
    elif bug.file.endswith(".toml"):
        tomllib.loads(text)


def test_there_are_enough_of_every_kind() -> None:
    assert len(BUGS) >= WANTED
    assert len({bug.id for bug in BUGS}) == len(BUGS)
    assert len({bug.digest for bug in BUGS}) == len(BUGS)
    assert list(KINDS) == list(TITLES)
    assert min(sum(bug.kind == kind for bug in BUGS) for kind in KINDS) >= 3


def test_a_bug_that_no_longer_fits_is_refused() -> None:
    bug = Bug(id="gone", algorithm="ars", kind="rows", file="a.py", old="x = 1", new="x = 2")
    assert bug.planted_in("x = 1\ny = 1\n") == "x = 2\ny = 1\n"
    for text in ("y = 1\n", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match="gone"):
            bug.planted_in(text)


def test_results_are_of_the_bugs_there_are() -> None:
    results = stored()
    assert [bug.id for bug in BUGS if not is_current(bug, results)] == [], "run: python -m tests.planted --new"
    assert set(results) == {bug.id for bug in BUGS}


def test_the_page_is_that_of_the_results() -> None:
    assert PAGE.read_text() == page(stored()), "run: python -m tests.planted --page"


def test_the_kit_finds_so_many() -> None:
    results = stored()
    found = {bug.id for bug in BUGS if results[bug.id].clause is not None}
    assert len(found) >= FOUND * len(BUGS)
    found |= {name for name, result in stored(STORED_FRESH).items() if result.clause is not None}
    assert not found & set(REASONS), "what is found needs no reason"
    assert set(REASONS) <= {bug.id for bug in (*BUGS, *fresh.BUGS)}


def test_both_halves_of_the_fresh_bugs_were_tried() -> None:
    results = stored(STORED_FRESH)
    assert [bug.id for bug in fresh.BUGS if not is_current(bug, results)] == []
    assert not {bug.id for bug in fresh.HALF_A} & {bug.id for bug in fresh.HALF_B}
    assert not [name for name, result in results.items() if result.clause == LOADING]
    missed = {bug.id for bug in fresh.BUGS if results[bug.id].clause is None}
    assert missed <= set(REASONS), "each miss has a reason"


def test_no_bug_stops_its_package_from_loading() -> None:
    assert [name for name, result in stored().items() if result.clause == LOADING] == []


@pytest.mark.slow
def test_a_sample_is_still_found() -> None:
    results = stored()
    chosen = random.sample([bug.id for bug in BUGS if results[bug.id].clause is not None], SAMPLE)
    command = [sys.executable, "-m", "tests.planted", "--dry", "--only", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in chosen)
    assert "NOT FOUND" not in done.stdout, done.stdout
