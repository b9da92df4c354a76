"""Mutants of the core: enough of every kind, each differs in one place; functions are swapped; the page has the results."""

from __future__ import annotations

import ast
from typing import Any

from tests.mutation import STORED, mutants, mutants_of, page
from tests.mutation_trials import FOLDERS, ROOT, runs_at_import, swap

TEXT = """
def f(a, b=1):
    if a < b and b:
        print(a)
    return [(lambda x: x + a)(b), (lambda x: x - a)(b)]
"""


def made(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, "x.py", "exec"), space)
    return space["f"]


def test_there_are_enough_in_every_folder() -> None:
    found = mutants()
    assert len(found) > 500
    assert {mutant.file.split("/")[1] for mutant in found} == set(FOLDERS)
    assert len({mutant.key() for mutant in found}) == len(found)


def test_a_mutant_changes_one_place() -> None:
    found = list(mutants_of("x.py", TEXT))
    shown = [f"{mutant.old} -> {mutant.new}" for mutant in found]
    expected = {"a < b and b -> a < b or b", "a < b -> a <= b", "print(a) -> None", "x + a -> x - a", "1 -> 2"}
    assert expected <= set(shown)
    assert {mutant.lines for mutant in found if mutant.old == "print(a)"} == {(4,)}


def test_a_mutant_is_a_whole_file() -> None:
    for mutant in mutants(["updates"])[::40]:
        before = ast.unparse(ast.parse((ROOT / mutant.file).read_text()))
        assert ast.unparse(mutant.tree()) != before


def test_functions_that_exist_get_the_mutants_code() -> None:
    old, changed = compile(TEXT, "x.py", "exec"), TEXT.replace("x - a", "x * a").replace("print(a)", "return None")
    new = compile(changed, "x.py", "exec")
    function = made(TEXT)
    assert function(5) == [6, -4]
    assert not runs_at_import(old, new)
    swap([function], old, new)
    assert function(5) == [6, 5]
    assert function(0) is None


def test_what_runs_at_import_is_not_swapped() -> None:
    old = compile(TEXT, "x.py", "exec")
    assert runs_at_import(old, compile(TEXT.replace("b=1", "b=2"), "x.py", "exec"))


def test_the_page_has_the_stored_results() -> None:
    assert page() in (ROOT / "docs" / "testing.md").read_text()
    assert STORED.stat().st_size < 60_000
