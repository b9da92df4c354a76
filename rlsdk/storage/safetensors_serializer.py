"""The `Serializer` of the core package: it writes tensors and a JSON document into one archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError
from rlsdk.storage.archive import inspect_archive, read_archive, table_in, write_archive

KIND = "rlsdk-tensors"


class SafetensorsSerializer:
    """Implements `rlsdk.interfaces.Serializer`. Names of tensors may contain '/' to group them."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, object]) -> None:
        write_archive(path, {"kind": KIND, "document": dict(document)}, {"tensors": tree.unflatten(tensors)})

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
        manifest, sections = read_archive(path, kind=KIND)
        flat = tree.flatten(table_in(sections, "tensors"))
        return {name: value for name, value in flat.items() if isinstance(value, Tensor)}, _document(manifest)

    def inspect(self, path: Path) -> dict[str, object]:
        manifest = inspect_archive(path, kind=KIND)
        return {"document": _document(manifest), "tensors": table_in(table_in(manifest, "tensors"), "tensors")}


def _document(manifest: Mapping[str, object]) -> dict[str, object]:
    """The document in a manifest. Raises ArtifactError if there is none: `save` always writes one."""
    if "document" not in manifest:
        raise ArtifactError("the file is damaged: its manifest has no document; take another copy")
    return dict(table_in(manifest, "document"))
