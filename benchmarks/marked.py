"""Replaces generated tables of pages. Each table is between two marks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def replaced(page: str, begin: str, end: str, table: str) -> str:
    """Return the page with `table` between the marks.

    Raises:
        SystemExit: the page lacks a mark.
    """
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise SystemExit(f"a page lacks the lines {begin} and {end}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def write_table(page: Path, marks: tuple[str, str], table: str) -> None:
    """Write a table between the marks of a page. Raises SystemExit if the page lacks a mark."""
    page.write_text(replaced(page.read_text(encoding="utf-8"), *marks, table), encoding="utf-8")


def with_row(page: str, marks: tuple[str, str], head: str, names: Iterable[str], row: str) -> str:
    """Return the page with one row added to the table between the marks, or replaced. Other rows do not change.

    Args:
        page: the text of the page.
        marks: the marks before and after the table.
        head: the first two lines of the table.
        names: the first cells of the rows, in their order; rows with other names are left out.
        row: the new row, which replaces the row with the same name.

    Raises:
        SystemExit: the page lacks a mark.
    """
    lines = [*page.partition(marks[0])[2].partition(marks[1])[0].splitlines(), row]
    known = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    return replaced(page, *marks, "\n".join([head, *(known[name] for name in names if name in known)]))
