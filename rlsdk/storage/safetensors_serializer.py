"""The Serializer of the core: tensors as safetensors and a JSON document, in one archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rlsdk import tree
from rlsdk.storage.archive import inspect_archive, read_archive, write_archive

KIND = "rlsdk-tensors"


class SafetensorsSerializer:
    """Implements `rlsdk.interfaces.Serializer`; tensor names may hold '/' to group them."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, object]) -> None:
        write_archive(path, {"kind": KIND, "document": dict(document)}, {"tensors": tree.unflatten(tensors)})

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        manifest, sections = read_archive(path, kind=KIND)
        return tree.flatten(sections["tensors"]), dict(manifest["document"])

    def inspect(self, path: Path) -> dict[str, Any]:
        manifest = inspect_archive(path, kind=KIND)
        return {"document": manifest["document"], "tensors": manifest["tensors"]["tensors"]}
