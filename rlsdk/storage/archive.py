"""The format of every rlsdk file: an uncompressed zip of `manifest.json` and, per section, tensors and JSON values.

The zip contains for each section `<name>.safetensors` and `<name>.json`, then `manifest.json`. The manifest lists the size and
SHA-256 digest of every other member. Files are written atomically: a reader sees the old file or the new one. Reading checks
sizes, digests and formats before it uses the data, and uses no pickle, eval or import.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NoReturn, TypeVar

from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, fitting
from rlsdk.interfaces import Serializer
from rlsdk.registry import extension
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.files import begin_writeback, write_atomically
from rlsdk.storage.tensors import (
    ALIGNMENT,
    CHUNK,
    TensorBlock,
    as_json,
    memory_mapped,
    nested_state,
    read_header,
    require_names,
)

BlockT = TypeVar("BlockT", bound=bytes | memoryview)


FORMAT = 1
AGENT_KIND = "rlsdk-agent"
"""The kind of a file that holds an agent; checkpoints have this kind too."""
MAX_JSON = 16 * 2**20
MAX_BRACKETS = 2**20
"""The largest number of `{` and `[` in a JSON member: each becomes a Python object of some hundred bytes."""
# Functions for trees call themselves once per level, and Python limits the depth of calls.
MAX_DEPTH = 50
MAX_NAME = 1000
"""The largest number of characters of a name in JSON or of the name of a tensor."""
MAP_FROM = 64 * 2**20
"""From this many bytes on, the tensors of a section are mapped from an unnamed temporary file instead of held in memory."""
_MANIFEST = "manifest.json"
_READ_ERRORS = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    ValueError,
    OSError,
)
Section = Mapping[str, object]
"""A nested state: its leaves are tensors or JSON values, and its keys contain no '/'."""
Document = dict[str, object]
"""A manifest that was read from a file. Its JSON values are unchecked: check each one before using it."""
Members = Mapping[str, Mapping[str, object]]
"""Name of a member -> its size and digest according to the manifest."""
Member = tuple[int, Iterable[bytes | memoryview]]
"""The size of a member of an archive and its bytes in chunks, so that tensors are never in memory twice."""


def table_in(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The table called `name` in a document; an empty table if the document lacks it.

    Raises:
        ArtifactError: the value is not a table.
    """
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArtifactError(f"the file is damaged: {name} = {repr(value)[:80]} is not a table; take another copy")
    return value


def shapes_in(document: Document) -> dict[str, dict[str, list[int]]]:
    """Section -> name of a tensor -> its shape, from a document of `inspect_archive`."""
    sections = table_in(document, "tensors")
    return {key: {name: _shape(entry) for name, entry in table_in(sections, key).items()} for key in sections}


def _shape(entry: object) -> list[int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        raise ArtifactError(f"the serializer lists a tensor as {repr(entry)[:80]}; it must be dtype and shape")
    return list(entry[1])


def write_archive(target: Path | IO[bytes], document: Mapping[str, object], sections: Mapping[str, Section]) -> None:
    """Write `document` and `sections` to a path (atomically) or a binary file object.

    Raises:
        ArtifactError: the file cannot be written; an existing file at the path is unchanged.
    """
    members = {name: member for key, section in sections.items() for name, member in _encode(key, section).items()}
    # raises before anything is written
    json.dumps(document, allow_nan=False)
    if isinstance(target, Path):
        write_atomically(target, lambda stream: _write_zip(stream, document, members))
        return
    try:
        _write_zip(target, document, members)
    except OSError as error:
        raise ArtifactError(
            f"cannot write to {_name(target)}: {error.strerror or error}; give a path, or a file with free space that can seek"
        ) from None


def _encode(key: str, section: Section) -> dict[str, Member]:
    require_names(section, key)
    tensors, values = _parts(section)
    block, text = TensorBlock(tensors), as_json(key, values)
    return {f"{key}.safetensors": (block.size, block.chunks()), f"{key}.json": (len(text), [text])}


def _parts(section: Section) -> tuple[dict[str, Tensor], dict[str, object]]:
    """(tensors [..], other values) of a section, by names joined by '/'."""
    flat = tree.flatten(section)
    tensors = {name: value for name, value in flat.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in flat.items() if name not in tensors}


def _write_zip(stream: IO[bytes], document: Mapping[str, object], members: Mapping[str, Member]) -> None:
    """Write the members, then the manifest with their digests, so that each chunk is read once, while it is in the cache."""
    # Uncompressed, so that tensors can be mapped, and headers read without the data behind them.
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        listing = {name: {"size": m[0], "sha256": _write_member(archive, name, m)} for name, m in members.items()}
        manifest = json.dumps({"format": FORMAT, **document, "members": listing}, indent=1, allow_nan=False)
        _write_member(archive, _MANIFEST, (len(manifest.encode()), [manifest.encode()]))


def _write_member(archive: zipfile.ZipFile, name: str, member: Member) -> str:
    """Write a member and return its digest."""
    size, chunks = member
    # A constant date: the same state gives the same bytes.
    info, digest = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), hashlib.sha256()
    # Before the entry is opened: the size decides about the fields of zip64 in its header.
    info.file_size = size
    info.extra = padding(archive, info)
    assert archive.fp is not None
    with archive.open(info, "w") as entry:
        for chunk in hash_chunks(chunks, digest, size):
            entry.write(chunk)
            begin_writeback(archive.fp, len(chunk))
    return digest.hexdigest()


def read_archive(
    source: Path | IO[bytes], wanted: Iterable[str] | None = None, *, kind: str
) -> tuple[Document, dict[str, dict[str, object]]]:
    """(document, sections) of an archive. Only the sections in `wanted` are read; None reads all, absent names are ignored.

    Raises:
        ArtifactError: the file is missing, damaged or truncated, not of rlsdk, or of another kind or format version.
    """
    with _open_archive(source, kind) as (archive, document, members):
        keys = {m.rpartition(".")[0] for m in members}
        chosen = keys if wanted is None else keys & set(wanted)
        return document, {key: _decode(archive, members, key) for key in sorted(chosen)}


def inspect_archive(source: Path | IO[bytes], *, kind: str) -> Document:
    """The document of an archive, with `tensors` added: section -> name -> [dtype, shape]. Tensor data are not read.

    Raises:
        ArtifactError: as for `read_archive`.
    """
    with _open_archive(source, kind) as (archive, document, members):
        headers = [m for m in members if m.endswith(".safetensors")]
        return {**document, "tensors": {m.rpartition(".")[0]: _header(archive, m) for m in headers}}


@contextlib.contextmanager
def _open_archive(source: Path | IO[bytes], kind: str) -> Iterator[tuple[zipfile.ZipFile, Document, Members]]:
    """(archive, checked manifest, members that the manifest lists). Reading errors in the block become an `ArtifactError`."""
    # at the first use of a file: training alone does without its megabyte
    from safetensors import SafetensorError

    name = _name(source)
    try:
        # a file object of the caller stays open
        opened = open(source, "rb") if isinstance(source, Path) else contextlib.nullcontext(source)  # noqa: SIM115
        with opened as stream, zipfile.ZipFile(stream) as archive:
            yield archive, *_manifest(archive, name, kind)
    # It is a ValueError as well, and has its message already.
    except ArtifactError:
        raise
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {name}; agent.save(path) writes one") from None
    except (*_READ_ERRORS, SafetensorError) as error:
        raise ArtifactError(
            f"{name} is not a whole {kind} file ({type(error).__name__}: {error}); take another copy, such as an earlier"
            " checkpoint"
        ) from None


def _name(source: Path | IO[bytes]) -> str:
    return str(source) if isinstance(source, Path) else str(getattr(source, "name", "the given file object"))


def _manifest(archive: zipfile.ZipFile, name: str, kind: str) -> tuple[Document, Members]:
    """(manifest, its list of members), after checking that each member is stored uncompressed and has the listed size."""
    entries = {info.filename: info for info in archive.infolist()}
    assert archive.fp is not None
    size = archive.fp.seek(0, io.SEEK_END)
    # A few compressed bytes could grow to any size in memory.
    for info in entries.values():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 0x1:
            raise ArtifactError(
                f"{name} is refused: {info.filename!r} is compressed or encrypted; rlsdk files never are"
            )
    # Entries that overlap would read the same bytes again and again.
    if len(entries) != len(archive.infolist()) or sum(info.file_size for info in entries.values()) > size:
        raise ArtifactError(f"{name} is refused: its entries repeat or overlap")
    if _MANIFEST not in entries:
        raise ArtifactError(f"{name} is not an rlsdk file: it has no {_MANIFEST}{_hint(set(entries), name)}")
    document = _json(archive.read(_MANIFEST))
    if document.get("kind") != kind:
        raise ArtifactError(f"{name} is a {document.get('kind')!r} file, not a {kind!r} file")
    if document.get("format") != FORMAT:
        raise ArtifactError(
            f"{name} has format {document.get('format')!r}, this rlsdk reads format {FORMAT}; install the rlsdk that wrote it"
        )
    listed = document.get("members")
    if not isinstance(listed, dict) or set(listed) | {_MANIFEST} != set(entries):
        raise ArtifactError(f"{name} is damaged: its entries are not the ones its manifest lists")
    for member, context in listed.items():
        if not isinstance(context, dict) or context.get("size") != entries[member].file_size:
            raise ArtifactError(f"{name} is damaged: {member!r} does not have the size its manifest states")
    return document, listed


def _hint(entries: set[str], name: str) -> str:
    if "policy.pth" in entries or "pytorch_variables.pth" in entries:
        return f" (it looks like a stable-baselines3 file: `rlsdk import {name}` converts it)"
    return ""


def _json(data: bytes) -> Document:
    # Before parsing, which takes a multiple of this memory.
    if len(data) > MAX_JSON:
        raise ValueError(f"a JSON member of {len(data)} bytes is too large")
    if data.count(b"{") + data.count(b"[") > MAX_BRACKETS:
        raise ValueError("a JSON member holds too many tables and lists")

    def refuse(text: str) -> NoReturn:
        raise ValueError(f"JSON holds {text}")

    try:
        document = json.loads(data, parse_constant=refuse)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("a JSON member is not a table")
    _require_plain(document)
    if b"\\ud" in data.lower():
        # a lone surrogate cannot be encoded: encoding raises ValueError
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _require_plain(document: Document) -> None:
    """Raise ValueError for names longer than `MAX_NAME` and for values nested more than `MAX_DEPTH` deep."""
    # Level by level, without recursion: the file decides about the depth.
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        following: list[object] = []
        for node in level:
            if isinstance(node, dict):
                if any(len(name) > MAX_NAME for name in node):
                    raise ValueError(f"a name has more than {MAX_NAME} characters")
                following.extend(node.values())
            elif isinstance(node, list):
                following.extend(node)
        level = [node for node in following if isinstance(node, dict | list)]
        if not level:
            return
    raise ValueError("JSON is nested too deeply")


def _decode(archive: zipfile.ZipFile, listed: Members, key: str) -> dict[str, object]:
    tensors = _read_tensors(archive, f"{key}.safetensors", listed)
    values = _json(_read_member(archive, f"{key}.json", listed))
    if any(len(name) > MAX_NAME or name.count("/") > MAX_DEPTH for name in (*tensors, *values)):
        raise ValueError(f"section {key!r} has a name that is too long or too deep")
    return nested_state({**tensors, **values})


def _read_member(archive: zipfile.ZipFile, member: str, listed: Members) -> bytes:
    """All bytes of a member, after checking their digest."""
    data = archive.read(member)
    _require_digest(archive, member, listed, hashlib.sha256(data))
    return data


def _require_digest(archive: zipfile.ZipFile, member: str, listed: Members, found: hashlib._Hash) -> None:
    if found.hexdigest() != listed[member].get("sha256"):
        raise ArtifactError(
            f"{archive.filename or 'the given file object'} is damaged: {member!r} does not match its digest"
        )


def _read_tensors(archive: zipfile.ZipFile, member: str, listed: Members) -> dict[str, Tensor]:
    """The tensors [..] of a member. A large member is copied to a private file, checked by its digest, and mapped. The copy is
    needed because another process may change or truncate the archive while the tensors are in use."""
    size = archive.getinfo(member).file_size
    if size < MAP_FROM:
        return _load_tensors(_read_member(archive, member, listed))
    with tempfile.TemporaryFile() as copy:
        digest = hashlib.sha256()
        try:
            with archive.open(member) as entry:
                for chunk in hash_chunks(iter(lambda: entry.read(CHUNK), b""), digest, size):
                    copy.write(chunk)
            copy.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # the disk is full: use memory
            return _load_tensors(_read_member(archive, member, listed))
        # Before the header is parsed and the tensors are used.
        _require_digest(archive, member, listed, digest)
        copy.seek(0)
        header, begin = read_header(copy.read, size, limit=MAX_JSON)
        if begin % ALIGNMENT:
            # another program wrote the file
            copy.seek(0)
            return _load_tensors(copy.read())
        return memory_mapped(copy, begin, header)


def _load_tensors(block: bytes) -> dict[str, Tensor]:
    """The tensors [..] of a block of bytes, loaded into memory."""
    import safetensors.torch

    tensors: dict[str, Tensor] = safetensors.torch.load(block)
    return tensors


def _header(archive: zipfile.ZipFile, member: str) -> dict[str, list[object]]:
    with archive.open(member) as stream:
        header, _ = read_header(stream.read, archive.getinfo(member).file_size, limit=MAX_JSON)
    return {name: [entry["dtype"], entry["shape"]] for name, entry in header.items()}


_PADDING_FIELD = 0x4252
_ZIP64_FIELD = 20
_LOCAL_HEADER = 30
"""The bytes of a zip entry's header before its name."""


def padding(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """An extra field that makes the entry's data begin at a multiple of `ALIGNMENT` bytes."""
    assert archive.fp is not None
    # the rule of zipfile for large entries
    sizes = _ZIP64_FIELD if info.file_size * 1.05 > zipfile.ZIP64_LIMIT else 0
    before = archive.fp.tell() + _LOCAL_HEADER + len(info.filename.encode()) + sizes + 4
    return struct.pack("<HH", _PADDING_FIELD, -before % ALIGNMENT) + bytes(-before % ALIGNMENT)


LARGE = 16 * 2**20
"""From this many bytes on, another thread computes the digest."""


def hash_chunks(chunks: Iterable[BlockT], digest: hashlib._Hash, size: int) -> Iterator[BlockT]:
    """Yield `chunks`, which have `size` bytes together, and add them to `digest`. It is complete after the last one.

    If they are large, another thread adds a chunk while the caller uses it and prepares the next one: hashlib, zlib and files
    do not hold Python's lock. At most two chunks wait for the thread.
    """
    if size < LARGE:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
        return
    with ThreadPoolExecutor(1, "digest") as thread:
        # A result to wait for in the first turn.
        before = thread.submit(digest.update, b"")
        for chunk in chunks:
            added = thread.submit(digest.update, chunk)
            yield chunk
            # The chunk before the last one: reading, hashing and writing overlap, and memory for two chunks is enough.
            before.result()
            before = added
        before.result()


def plugin_serializer(target: Path | IO[bytes]) -> Serializer | None:
    """The serializer that a plugin offers for the suffix of `target`; None if `target` is an archive of rlsdk."""
    # no manifest can list the suffix of agents, so that plugins need not be asked
    if not isinstance(target, Path) or target.suffix == ".rlsdk" or not is_offered("serializers", target.suffix):
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
    tensors, values = _parts(sections)
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


KIND = "rlsdk-tensors"


class SafetensorsSerializer:
    """Implements `rlsdk.interfaces.Serializer`. Names of tensors may contain '/' to group them."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, object]) -> None:
        write_archive(path, {"kind": KIND, "document": dict(document)}, {"tensors": tree.unflatten(tensors)})

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
        manifest, sections = read_archive(path, kind=KIND)
        return _parts(table_in(sections, "tensors"))[0], _document(manifest)

    def inspect(self, path: Path) -> dict[str, object]:
        manifest = inspect_archive(path, kind=KIND)
        return {"document": _document(manifest), "tensors": table_in(table_in(manifest, "tensors"), "tensors")}


def _document(manifest: Mapping[str, object]) -> dict[str, object]:
    """The document in a manifest. Raises ArtifactError if there is none: `save` always writes one."""
    if "document" not in manifest:
        raise ArtifactError("the file is damaged: its manifest has no document; take another copy")
    return dict(table_in(manifest, "document"))
