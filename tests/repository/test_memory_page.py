"""The sentence in docs/memory.md about peak memory agrees with the table of measured speeds and peaks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.__main__ import MARK, TABLE


def test_no_case_takes_more_memory_than_the_peer() -> None:
    rows = [line.strip("|").split("|") for line in TABLE.read_text(encoding="utf-8").partition(MARK)[2].splitlines()]
    head = [cell.strip() for cell in next(row for row in rows if len(row) > 1)]
    peaks = [
        (int(row[head.index("rlsdk, MiB")]), int(row[head.index("peer, MiB")]))
        for row in rows
        if len(row) == len(head) and row[head.index("peer, MiB")].strip().isdigit()
    ]
    assert len(peaks) > 20
    assert all(ours <= theirs for ours, theirs in peaks)
    assert "at or below the peer's" in (Path(TABLE).parent / "memory.md").read_text(encoding="utf-8")
