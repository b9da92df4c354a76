"""One planted bug: a replacement in one source file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A bug that a plugin author could write by mistake: `old`, which occurs once in `file`, is replaced by `new`."""

    id: str
    """The mistake, in words joined by hyphens."""
    algorithm: str
    """The id of the algorithm that the bug breaks; `planted-FAMILY` for the unchanged package of `rlsdk new`."""
    kind: str
    """One of `tests.planted.kinds.KINDS`."""
    file: str
    """The path, relative to the root of the repository."""
    old: str
    new: str

    @property
    def digest(self) -> str:
        """Identifies the bug in stored results: it changes with the algorithm, the file and both texts."""
        content = json.dumps([self.algorithm, self.file, self.old, self.new])
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def planted_in(self, text: str) -> str:
        """The text of the file with the bug.

        Raises:
            ValueError: `old` does not occur exactly once, because the file has changed.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.id}: its `old` stands {text.count(self.old)} times in {self.file}, not once")
        return text.replace(self.old, self.new)
