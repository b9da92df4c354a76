"""The last line of a metrics file: later metrics of the same step are added to it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path


class LastLine:
    """Appends lines to a file and merges metrics of the same step into one line.

    If a name would get a second value in that line, a new line is started. Lines that another object wrote stay unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step, self.values = -1, dict[str, object]()
        self.start = self.end = -1
        """The offsets in the file, in bytes, at which the last line begins and ends; -1 before the first line."""

    def merge(self, step: int, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values of the next line, which the caller passes to `write` as text.

        If the last line can be merged (see the class), its values are included, and it is removed from the file.
        """
        whole = self.path.exists() and self.path.stat().st_size == self.end
        if step == self.step and whole and not self.values.keys() & values.keys():
            with self.path.open("r+b") as stream:
                stream.truncate(self.start)
            values = {**self.values, **values}
        self.step, self.values = step, dict(values)
        return self.values

    def write(self, line: str) -> None:
        """Append `line`, which includes its line break, to the file.

        Raises:
            OSError: it cannot be written, for example because the disk is full. No part of it remains in the file.
        """
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
