"""Many quick parametrizations as one test, whose failure names the rows that fail."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest


def in_one_test(function: Callable[..., None]) -> Callable[..., None]:
    """Run all rows of the `parametrize` marks below this decorator in one test. Every row runs, also after one that failed.

    It is for rows of milliseconds: collecting and reporting a test takes longer than running them. Rows share the fixtures,
    except that each has its own `monkeypatch`, undone after it, and its own folder `tmp_path`.
    """
    marks = list(getattr(function, "pytestmark", []))
    tables = [mark for mark in marks if mark.name == "parametrize"]
    rows = list(_rows(tables))
    named = set().union(*(row.keys() for _, row in rows))

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        failures, skipped = [], []
        for number, (name, row) in enumerate(rows):
            try:
                with _own(fixtures, number) as own:
                    function(**row, **own)
            except pytest.skip.Exception as why:
                skipped.append(f"{name}: {why}")
            except (Exception, pytest.fail.Exception) as failure:
                failures.append(failure if isinstance(failure, Exception) else AssertionError(str(failure)))
                failures[-1].add_note(f"row: {name}")
        if failures:
            names = ", ".join(failure.__notes__[-1].removeprefix("row: ") for failure in failures)
            raise ExceptionGroup(f"{len(failures)} of {len(rows)} rows fail: {names}", failures)
        if skipped:
            pytest.skip(f"{len(skipped)} of {len(rows)} rows: {skipped[0]}")

    parameters = inspect.signature(function).parameters.values()
    test.__signature__ = inspect.Signature([each for each in parameters if each.name not in named])  # type: ignore[attr-defined]
    test.pytestmark = [mark for mark in marks if mark not in tables]  # type: ignore[attr-defined]
    return test


@contextmanager
def _own(fixtures: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures of a row."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = fixtures["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # not the fixture itself: undoing that would also undo what other fixtures patched for all rows
        own |= {"monkeypatch": patch} if "monkeypatch" in own else {}
        yield own


def _rows(tables: list[pytest.Mark]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, values by argument) of each row of the product of tables."""
    for chosen in itertools.product(*(list(_values(table)) for table in tables)):
        yield "-".join(name for name, _ in chosen), {key: value for _, row in chosen for key, value in row.items()}


def _values(table: pytest.Mark) -> Iterator[tuple[str, dict[str, Any]]]:
    names, values = table.args[:2]
    keys = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    ids = table.kwargs.get("ids")
    assert set(table.kwargs) <= {"ids"}, "rows of one test take no indirect fixtures"
    for number, value in enumerate(list(values)):
        named = ids(value) if callable(ids) else list(ids)[number] if ids else None
        cells: Any = value if len(keys) > 1 else [value]
        if isinstance(value, type(pytest.param())):
            assert not value.marks, "rows of one test have no marks of their own"
            named, cells = value.id, value.values
        row = dict(zip(keys, cells, strict=True))
        yield str(named or ", ".join(map(repr, row.values())))[:80], row
