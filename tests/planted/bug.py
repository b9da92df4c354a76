"""One planted bug: a replacement in one source file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """`old`, which stands once in `file`, becomes `new`: what an author of a plugin could have written by mistake."""

    id: str
    """What is wrong, in words joined by hyphens."""
    algorithm: str
    """The id of the algorithm whose behaviour it breaks; `planted-FAMILY` for the untouched package of `rlsdk new`."""
    kind: str
    """One of `tests.planted.kinds.KINDS`."""
    file: str
    """From the repository's root."""
    old: str
    new: str

    @property
    def digest(self) -> str:
        """What a stored result belongs to: another algorithm, file or text is another bug."""
        content = json.dumps([self.algorithm, self.file, self.old, self.new])
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def planted_in(self, text: str) -> str:
        """The text of the file with the bug.

        Raises:
            ValueError: the file has changed; the bug no longer fits it.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.id}: its `old` stands {text.count(self.old)} times in {self.file}, not once")
        return text.replace(self.old, self.new)
