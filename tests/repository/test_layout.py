"""Tests are laid out as the code is, and commands find them by the name of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import LONG, LONGEST, path_of_tests
from rlsdk_testing import clauses

ROOT = Path(__file__).parents[2]


def test_every_folder_of_the_code_has_its_tests() -> None:
    folders = [path.parent.name for path in ROOT.glob("rlsdk/*/__init__.py")]
    assert len(folders) > 15
    assert [name for name in folders if not list((ROOT / "tests" / name).glob("test_*.py"))] == []


def test_no_test_is_beside_the_folders_but_those_of_modules_beside_folders() -> None:
    modules = {path.stem for path in (*ROOT.glob("rlsdk/*.py"), *ROOT.glob("tests/*.py"))}
    found = [path.stem.removeprefix("test_") for path in ROOT.glob("tests/test_*.py")]
    assert [name for name in found if name.split("_")[-1] not in modules] == []


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("rlsdk", "tests"),
        ("rlsdk/buffers", "tests/buffers"),
        ("rlsdk/environments/vector/processes.py", "tests/environments"),
        ("rlsdk/tree.py", "tests/test_tree.py"),
        ("plugins/rlsdk-tqc/src/rlsdk_tqc/algorithm.py", "plugins/rlsdk-tqc/tests"),
        ("plugins/rlsdk-tqc", "plugins/rlsdk-tqc"),
        ("benchmarks/cases.py", "tests/benchmarks"),
        ("tests/buffers/test_ring.py::test_x", "tests/buffers/test_ring.py::test_x"),
    ],
)
def test_code_leads_to_its_tests(argument: str, expected: str) -> None:
    assert Path(path_of_tests(argument)) == Path(expected)


def test_the_clauses_that_make_test_leaves_out_exist_and_each_is_in_one_list() -> None:
    assert {clause.id for clause in clauses()} >= LONG | LONGEST
    assert not LONG & LONGEST


def test_ci_runs_the_long_clauses_of_every_algorithm() -> None:
    (command,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "tests/test_contract.py" in line]
    assert "-m slow" in command
    folders = [path.parents[1] for path in ROOT.glob("*/*/tests/test_contract.py")]
    assert len(folders) >= 22
    assert {path.parent.name for path in folders} == set(re.findall(r"(\w+)/\*/tests/test_contract", command))
    assert "run: make test-clauses" in (ROOT / ".github" / "workflows" / "test.yml").read_text()
