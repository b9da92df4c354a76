"""The bugs of plugin authors fit fresh packages and examples, and are split evenly into two halves."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from rlsdk_testing.scaffold import rendered
from tests.planted import BUGS, authors, effects, fresh
from tests.planted.authors import HALVES, WRITTEN, Written
from tests.planted.bug import Bug
from tests.planted.kinds import KINDS
from tests.tables import in_one_test

ROOT = Path(__file__).parents[3]
WANTED = 120
ALIKE = 4
"""The most bugs of one idea."""

fresh_package = cache(rendered)


def author_text(bug: Bug) -> str:
    """The file as an author gets it: of a fresh package, or of the example."""
    if bug.algorithm not in effects.SCAFFOLDS:
        return (ROOT / bug.file).read_text()
    family, actions = effects.SCAFFOLDS[bug.algorithm]
    name = f"/{Path(bug.file).name.removesuffix('.tmpl')}"
    (text,) = (t for place, t in fresh_package(bug.algorithm, family, actions).items() if place.endswith(name))
    return text


@in_one_test
@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written.bug.id)
def test_a_bug_fits_the_sources(written: Written) -> None:
    bug = written.bug
    bug.planted_in((ROOT / bug.file).read_text())
    ast.parse(bug.planted_in(author_text(bug)))
    assert bug.kind in KINDS
    assert bug.algorithm in effects.TRIALS


def test_the_bugs_are_many_and_diverse() -> None:
    assert len(WRITTEN) >= WANTED
    assert {written.bug.algorithm for written in WRITTEN} == set(effects.TRIALS)
    assert max(Counter((written.family, written.idea) for written in WRITTEN).values()) == 1
    assert max(Counter(written.idea for written in WRITTEN).values()) <= ALIKE


def test_no_bug_is_in_another_list() -> None:
    others = (*BUGS, *fresh.BUGS)
    assert len({written.bug.id for written in WRITTEN}) == len(WRITTEN)
    assert not {written.bug.id for written in WRITTEN} & {bug.id for bug in others}
    assert not {written.bug.digest for written in WRITTEN} & {bug.digest for bug in others}


def test_both_halves_have_as_many_bugs_of_each_family() -> None:
    assert {written.half for written in WRITTEN} == set(HALVES)
    for family in {written.family for written in WRITTEN}:
        first, second = (sum(w.family == family and w.half == half for w in WRITTEN) for half in HALVES)
        assert abs(first - second) <= 1
    assert [bug.id for bug in authors.half("open")] == [w.bug.id for w in WRITTEN if w.half == "open"]


@pytest.mark.slow
def test_a_sample_changes_what_an_agent_does() -> None:
    chosen = random.sample([written.bug.id for written in WRITTEN], 4)
    command = [sys.executable, "-m", "tests.planted.effects", "--only", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in chosen)
