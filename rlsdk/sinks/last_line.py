"""The last line of a file of metrics, which further metrics of its step are added to."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path


class LastLine:
    """Keeps one line per step: metrics of the same step are merged, unless a name would get a second value.

    Lines that another object wrote are left alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step, self.values = -1, dict[str, object]()
        self.start = self.end = -1
        """Where the line begins and ends, in bytes."""

    def merge(self, step: int, values: Mapping[str, object]) -> dict[str, object]:
        """The values of the line to `write` next. The last line is cut off if they include it."""
        whole = self.path.exists() and self.path.stat().st_size == self.end
        if step == self.step and whole and not self.values.keys() & values.keys():
            with self.path.open("r+b") as stream:
                stream.truncate(self.start)
            values = {**self.values, **values}
        self.step, self.values = step, dict(values)
        return self.values

    def write(self, line: str) -> None:
        """Append a line, its end included; raises OSError, on a full disk for example, and leaves no part of it."""
        data, before = line.encode(), self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab", buffering=0) as stream:
                if stream.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self.path, before)
            raise
        self.end = self.path.stat().st_size
        self.start = self.end - len(data)
