"""Safe files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Serializer(Protocol):
    """Writes and reads tensors with a JSON document. Loading runs no code from the file."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None: ...

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def inspect(self, path: Path) -> dict[str, Any]:
        """The document and the names, dtypes and shapes of the tensors, without reading the tensors."""
        ...
