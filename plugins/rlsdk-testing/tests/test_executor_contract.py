"""Every executor of the core passes the contract of executors, and each clause finds the bug that is planted for it."""

from __future__ import annotations

import pytest

from rlsdk.errors import ContractViolation, SettingsError
from rlsdk_testing import ExecutorClause, executor_clauses, verify_executor

HERE = ["in-process", "concurrent.futures:ThreadPoolExecutor"]
ELSEWHERE = ["processes", "concurrent.futures:ProcessPoolExecutor", "loky:ProcessPoolExecutor"]
QUICK = {("processes", "executor.submit"), ("processes", "executor.errors")}
"""Cases of the fast suite, besides those that start no process. tests/test_executors.py has more tests of `processes`."""
CASES = [
    pytest.param(name, clause, marks=() if name in HERE or (name, clause.id) in QUICK else pytest.mark.slow)
    for name in (*HERE, *ELSEWHERE)
    for clause in executor_clauses()
]


@pytest.mark.parametrize(("name", "clause"), CASES, ids=str)
@pytest.mark.full
def test_contract(name: str, clause: ExecutorClause) -> None:
    verify_executor(name, clause)


@pytest.mark.slow
@pytest.mark.parametrize("clause", executor_clauses(slow=True), ids=str)
@pytest.mark.parametrize("name", [*HERE, *ELSEWHERE])
def test_with_much_memory(name: str, clause: ExecutorClause) -> None:
    verify_executor(name, clause)


MUTANTS = {
    "executor.order": "Unordered",
    "executor.errors": "Wrapping",
    "executor.first-failure": "Finishing",
    "executor.again": "Exhausted",
    "executor.dead-worker": "Unrepaired",
    "executor.deadly-item": "Stubborn",
    "executor.unpicklable": "Raw",
    "executor.large-items": "Rounding",
    "executor.very-large-items": "Rounding",
    "executor.nested": "Locked",
    "executor.submit": "Swallowing",
    "executor.cancel": "Uncancellable",
    "executor.seeds": "OtherSeeds",
    "executor.candidates": "Swapping",
    "executor.evaluation": "Unordered",
    "executor.collectors": "Mixing",
}
"""Clause -> the class of tests/executor_mutants.py that has the bug."""


@pytest.mark.parametrize(
    ("clause", "mutant"), [pair for pair in MUTANTS.items() if pair[0] != "executor.very-large-items"], ids=str
)
def test_the_contract_catches(clause: str, mutant: str) -> None:
    with pytest.raises(ContractViolation, match=clause):
        verify_executor(f"tests.executor_mutants:{mutant}", clause)


def test_every_clause_has_a_mutant() -> None:
    assert MUTANTS.keys() == {clause.id for slow in (False, True) for clause in executor_clauses(slow=slow)}


def test_unknown_clauses_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"did you mean 'executor\.order'"):
        verify_executor("in-process", "executor.ordre")
