"""docs/user-needs.md: 25 needs, each with a status, pages and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "user-needs.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(r"\| \d", line)]
TEST = re.compile(r"`([\w./-]+\.py)::(\w+)`( \(slow\))?")
COUNTS = {
    9: "nine",
    16: "sixteen",
    12: "twelve",
    13: "thirteen",
    14: "fourteen",
    11: "eleven",
    10: "ten",
    15: "fifteen",
    17: "seventeen",
    8: "eight",
    18: "eighteen",
    7: "seven",
}


def functions(path: str) -> dict[str, bool]:
    """Map the name of every function in a test file to whether it is marked as slow."""
    tree = ast.parse((ROOT / path).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: "pytest.mark.slow" in map(ast.unparse, node.decorator_list) for node in found}


def test_there_are_twenty_five_in_order() -> None:
    assert [int(row[0].partition(".")[0]) for row in ROWS] == list(range(1, 26))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_need_has_evidence(row: list[str]) -> None:
    _, status, text, pages, tests = row
    assert status in ("met", "partly", "not met")
    assert ("Missing: " in text) == (status != "met"), "what is missing is named where something is"
    links = re.findall(r"\]\(([^)#]+)\)", pages)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []
    named = TEST.findall(tests)
    assert named
    assert TEST.sub("", tests).strip(" ,") == ""
    for path, name, slow in named:
        known = functions(path)
        assert name in known, f"{path} has no {name}"
        assert known[name] == bool(slow), f"{name}: slow tests are marked so"


def test_the_sum_is_that_of_the_table() -> None:
    met, partly = (COUNTS[sum(row[1] == status for row in ROWS)] for status in ("met", "partly"))
    assert f"{met.title()} needs are met, {partly} are met in part." in PAGE
