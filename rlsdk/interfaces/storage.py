"""The Protocol of readers and writers of files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Serializer(Protocol):
    """Writes and reads tensors together with a JSON document. Loading a file runs no code from it."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None: ...

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def inspect(self, path: Path) -> dict[str, Any]:
        """Return the document and the names, dtypes and shapes of the tensors, without reading the tensors."""
        ...
