"""Tables of pages that a program writes: what stands between two marks."""

from __future__ import annotations


def replaced(page: str, begin: str, end: str, table: str) -> str:
    """The page with `table` between the marks.

    Raises:
        SystemExit: the page lacks a mark.
    """
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise SystemExit(f"a page lacks the lines {begin} and {end}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"
