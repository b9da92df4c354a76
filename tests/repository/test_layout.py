"""Tests are laid out as the code is, and commands find them by the name of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import path_of_tests

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
