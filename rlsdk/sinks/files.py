"""A sink that prints metrics as tables, on standard output or into a log file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

from rlsdk.errors import one_line
from rlsdk.runtime.output import print_line
from rlsdk.sinks.sink import Sink
from rlsdk.sinks.values import in_words

WIDEST = 80
"""Characters of a text in a table."""


class ConsoleSink(Sink):
    """Prints the metrics of each call of `write` as one table, grouped by the part of the name before the last slash."""

    def __init__(self, stream: TextIO | None = None, *, format: str = "stdout") -> None:  # noqa: A002  # the documented word
        self.stream, self.format = stream or sys.stdout, format

    def write(self, step: int, values: Mapping[str, object]) -> None:
        if not values:
            return
        rows: list[tuple[str, str]] = []
        group = ""
        for name in sorted(values):
            head, _, tail = name.rpartition("/")
            if head != group:
                rows.append((f"{head}/", ""))
                group = head
            rows.append(
                (
                    f"   {one_line(tail)}",
                    f"{values[name]:.4g}" if isinstance(values[name], float) else str(values[name]),
                )
            )
        left, right = max(len(r[0]) for r in rows), max(len(r[1]) for r in rows)
        line = "-" * (left + right + 7)
        body = "\n".join(f"| {name:<{left}} | {value:<{right}} |" for name, value in rows)
        print_line(f"{line}\n{body}\n{line}", self.stream)

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Print the texts, Nones and arrays of at most 1,000 entries, each on one line, and return their names."""
        known = {name: value if isinstance(value, str) else in_words(value) for name, value in values.items()}
        texts = {name: one_line(value, WIDEST) for name, value in known.items() if value is not None}
        if texts:
            self.write(step, texts)
        return list(texts)

    def close(self) -> None:
        """Close the stream if it is a log file. The caller closes any other stream."""
        if self.format == "log":
            self.stream.close()
