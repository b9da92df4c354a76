"""Mutants of the core: enough of every kind, each a file that can be read and differs in one place."""

from __future__ import annotations

import ast

from tests.mutation import FOLDERS, ROOT, mutants, mutants_of


def test_there_are_enough_in_every_folder() -> None:
    found = mutants()
    assert len(found) > 500
    assert {mutant.file.split("/")[1] for mutant in found} == set(FOLDERS)


def test_a_mutant_changes_one_place() -> None:
    text = "def f(a, b):\n    if a < b and b:\n        print(a)\n    return a + 1\n"
    shown = [f"{mutant.old} -> {mutant.new}" for mutant in mutants_of("x.py", text)]
    expected = ["a < b and b -> a < b or b", "a < b -> a <= b", "print(a) -> None", "a + 1 -> a - 1", "1 -> 2"]
    assert set(expected) <= set(shown)
    assert "return a + 1 -> return None" in shown


def test_a_mutant_is_a_whole_file() -> None:
    for mutant in mutants(["updates"])[::40]:
        before = ast.unparse(ast.parse((ROOT / mutant.file).read_text()))
        assert ast.unparse(ast.parse(mutant.text())) != before
