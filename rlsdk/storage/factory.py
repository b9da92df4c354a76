"""Write and read files with the serializer of a plugin for the path's suffix, or else as archives of rlsdk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, fitting
from rlsdk.interfaces import Serializer
from rlsdk.registry import extension
from rlsdk.registry.loading import is_offered
from rlsdk.storage.archive import Document, Section, inspect_archive, read_archive, write_archive
from rlsdk.storage.storable import nested_state, require_names


def plugin_serializer(target: Path | IO[bytes]) -> Serializer | None:
    """The serializer that a plugin offers for the suffix of `target`; None if `target` is an archive of rlsdk."""
    if not isinstance(target, Path) or not is_offered("serializers", target.suffix):
        return None
    serializer: Serializer = extension("serializers", target.suffix)()
    return serializer


def write(target: Path | IO[bytes], document: Mapping[str, object], sections: Mapping[str, Section]) -> None:
    """Write a document and sections to a file; see `write_archive`."""
    serializer = plugin_serializer(target)
    if serializer is None:
        write_archive(target, document, sections)
        return
    assert isinstance(target, Path)
    require_names(sections)
    flat = tree.flatten(sections)
    tensors = {name: value for name, value in flat.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in flat.items() if not isinstance(value, Tensor)}
    with fitting(f"the plugin for {target.suffix} files cannot write {target}"):
        serializer.save(target, tensors, {"manifest": dict(document), "values": values})


def read(
    source: Path | IO[bytes], wanted: Iterable[str] | None = None, *, kind: str
) -> tuple[Document, dict[str, dict[str, object]]]:
    """(document, sections) of a file; see `read_archive`.

    Raises:
        ArtifactError: the file cannot be read, or is not of this `kind`.
    """
    serializer = plugin_serializer(source)
    if serializer is None:
        return read_archive(source, wanted, kind=kind)
    assert isinstance(source, Path)
    with fitting(f"the plugin for {source.suffix} files cannot read {source}"):
        tensors, document = serializer.load(source)
        manifest, values = document.get("manifest"), document.get("values")
    if not isinstance(manifest, dict) or not isinstance(values, dict) or manifest.get("kind") != kind:
        raise ArtifactError(f"{source} is not a whole {kind} file")
    sections = nested_state({**tensors, **values})
    chosen = set(sections) if wanted is None else set(sections) & set(wanted)
    return manifest, {name: section for name in sorted(chosen) if isinstance(section := sections[name], dict)}


def inspect(source: Path | IO[bytes], *, kind: str) -> Document:
    """The document of a file, with the dtype and shape of each tensor but no tensor data; see `inspect_archive`."""
    serializer = plugin_serializer(source)
    if serializer is None:
        return inspect_archive(source, kind=kind)
    assert isinstance(source, Path)
    with fitting(f"the plugin for {source.suffix} files cannot read {source}"):
        context = serializer.inspect(source)
        return {**context["document"]["manifest"], "members": {}, "tensors": {"all": context["tensors"]}}
