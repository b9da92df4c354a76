"""Rows in one test: each runs, and the failure names those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables import in_one_test


def table(a: int, pair: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROW", str(a))
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    if pair == (1, 2) and a == 3:
        pytest.fail("with this row")
    assert pair != (5, 6)


def test_all_rows_run_and_failures_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pytest.mark.parametrize("pair", [(1, 2), (3, 4), (5, 6)])
    joined = in_one_test(pytest.mark.parametrize("a", [1, 3])(rows(table)))
    with pytest.raises(ExceptionGroup, match=r"3 of 6 rows fail: \(1, 2\)-3, \(5, 6\)-1, \(5, 6\)-3") as caught:
        joined(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert len(caught.value.exceptions) == 3
    assert len(list(tmp_path.iterdir())) == 6


@in_one_test
@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 2)], ids=["one", "two"])
@pytest.mark.parametrize("c", [pytest.param(3, id="three")])
def test_it_takes_what_parametrize_takes(a: int, b: int, c: int, request: pytest.FixtureRequest) -> None:
    assert (a, c) == (b, 3)
    assert "[" not in request.node.name
