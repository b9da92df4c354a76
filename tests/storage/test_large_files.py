"""Tensors written and read piece by piece: the format of safetensors, refusal of any damage, bounded memory."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsdk.errors import ArtifactError
from rlsdk.runtime import files
from rlsdk.storage import archive
from rlsdk.storage import archive as hashing
from rlsdk.storage.archive import read_archive, write_archive
from rlsdk.storage.tensors import ALIGNMENT, DTYPES, TensorBlock, read_header
from tests.tables import in_one_test

EVERYTHING: dict[str, torch.Tensor] = {
    **{f"of {name}": torch.arange(7).to(dtype) for name, dtype in DTYPES.items()},
    "nothing": torch.empty(0, 3),
    "number": torch.tensor(2.5),
    "turned": torch.arange(12.0).view(3, 4).T,
    "spread": torch.arange(20)[::3],
}


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)


@pytest.fixture
def always_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAP_FROM", 0)


def test_the_library_reads_what_is_written() -> None:
    block = TensorBlock(EVERYTHING)
    data = b"".join(bytes(chunk) for chunk in block.chunks())
    assert len(data) == block.size
    found = safetensors.torch.load(data)
    assert all(same(found[name], value) for name, value in EVERYTHING.items())
    assert set(found) == set(EVERYTHING)
    header, begin = read_header(
        io.BytesIO(safetensors.torch.save(EVERYTHING_CONTIGUOUS)).read, _library_size(), limit=10**6
    )
    assert set(header) == set(EVERYTHING)
    assert begin % 8 == 0


EVERYTHING_CONTIGUOUS = {name: value.contiguous() for name, value in EVERYTHING.items()}


def _library_size() -> int:
    return len(safetensors.torch.save(EVERYTHING_CONTIGUOUS))


@pytest.mark.usefixtures("always_mapped")
def test_mapped_tensors_are_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_archive(path, {"kind": "x"}, {"big": {**EVERYTHING, "deep": {"values": torch.ones(3)}, "count": 3}})
    _, sections = read_archive(path, kind="x")
    found = sections["big"]
    assert all(same(found[name], value) for name, value in EVERYTHING.items())
    assert found["deep"]["values"].tolist() == [1.0, 1.0, 1.0]
    assert found["count"] == 3
    before = path.read_bytes()
    found["number"].fill_(9.0)
    assert path.read_bytes() == before, "writing to a mapped tensor leaves the file alone"
    write_archive(path, {"kind": "x"}, {"big": {"other": torch.zeros(2)}})
    assert found["turned"].tolist() == EVERYTHING["turned"].tolist(), (
        "a replaced file stays readable while it is mapped"
    )


class FullDisk(io.BytesIO):
    """A temporary file for which the disk has no room, or which fails in another way."""

    number = errno.ENOSPC

    def write(self, data: Any) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.usefixtures("always_mapped")
def test_a_full_disk_means_tensors_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(path := tmp_path / "a", {"kind": "x"}, {"big": EVERYTHING})
    monkeypatch.setattr(tempfile, "TemporaryFile", FullDisk)
    found = read_archive(path, kind="x")[1]["big"]
    assert set(found) == set(EVERYTHING)
    assert all(same(found[name], value) for name, value in EVERYTHING.items())
    monkeypatch.setattr(FullDisk, "number", errno.EIO)
    with pytest.raises(ArtifactError, match=os.strerror(errno.EIO)):
        read_archive(path, kind="x")


@in_one_test
@pytest.mark.parametrize("size", [0, 10**6, 2 * 10**9, 2_100_000_000, 5 * 10**9, 10**12])
@pytest.mark.parametrize("name", ["a", "policy.safetensors", "r\u00e9play.safetensors"])
def test_entries_of_every_size_begin_at_a_multiple(size: int, name: str) -> None:
    """Large ones have further fields in their header. Tensors of other entries could not be mapped."""
    with zipfile.ZipFile(io.BytesIO(), "w") as written:
        for _ in range(3):  # so that headers begin at several places
            info = zipfile.ZipInfo(name)
            info.file_size = size
            info.extra = archive.padding(written, info)
            with warnings.catch_warnings(action="ignore"), written.open(info, "w") as entry:
                assert written.fp is not None
                assert written.fp.tell() % ALIGNMENT == 0
                entry.write(b"abc")


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="complex"):
        TensorBlock({"a": torch.zeros(1, dtype=torch.complex64)})


def rewritten(source: Path, target: Path, header: Any, data: bytes = b"\x00" * 8) -> None:
    """Copy the archive with other tensors and matching digests."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    blob = struct.pack("<Q", len(text)) + text + data
    with zipfile.ZipFile(source) as old:
        manifest, values = json.loads(old.read("manifest.json")), old.read("s.json")
    manifest["members"]["s.safetensors"] = {"size": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}
    with zipfile.ZipFile(target, "w") as new:
        new.writestr("manifest.json", json.dumps(manifest))
        new.writestr("s.safetensors", blob)
        new.writestr("s.json", values)


@in_one_test
@pytest.mark.usefixtures("always_mapped")
@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4 * 10**30]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, "8"]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, True]}},
        {"a": {"dtype": "F32", "shape": [2]}},
        {"a": 3},
        [1],
        b"{",
        b"\xff",
        b"[" * 50_000,
        {
            "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
            "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]},
        },
        {
            "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
            "b": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
        },
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, header: Any) -> None:
    write_archive(tmp_path / "good", {"kind": "x"}, {"s": {"a": torch.ones(2)}})
    rewritten(tmp_path / "good", tmp_path / "bad", header)
    with pytest.raises(ArtifactError):
        read_archive(tmp_path / "bad", kind="x")


def test_tensors_may_not_lie_upon_each_other() -> None:
    entry = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}
    text = json.dumps({"a": entry, "b": entry}).encode()
    block = struct.pack("<Q", len(text)) + text + bytes(8)
    with pytest.raises(ValueError, match="do not fit its shape"):
        read_header(io.BytesIO(block).read, len(block), limit=10**6)


@pytest.mark.usefixtures("always_mapped")
def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    """Files whose tensors begin at any offset can be read; such tensors are not mapped into memory."""
    write_archive(tmp_path / "good", {"kind": "x"}, {"s": {"a": torch.ones(2)}})
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    rewritten(tmp_path / "good", tmp_path / "other", header, struct.pack("<2f", 4.0, 5.0))
    assert read_archive(tmp_path / "other", kind="x")[1]["s"]["a"].tolist() == [4.0, 5.0]


@pytest.mark.usefixtures("always_mapped")
def test_digests_of_mapped_tensors_are_checked(tmp_path: Path) -> None:
    """The digests of mapped tensors are checked. zip's own checksum would need all data, and opening a long entry
    reads only a part."""
    values = torch.arange(500_000.0)
    write_archive(tmp_path / "a", {"kind": "x"}, {"s": {"a": values}})
    data = bytearray((tmp_path / "a").read_bytes())
    data[data.find(values[:50].numpy().tobytes()) + 1_000_001] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"digest|CRC"):
        read_archive(tmp_path / "a", kind="x")


@settings(max_examples=150, deadline=None)
@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "a"
    write_archive(path, {"kind": "x"}, {"s": {"a": torch.arange(50.0)}})
    data = bytearray(path.read_bytes())
    data[position % len(data)] = value
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "MAP_FROM", 0)
        try:
            found = read_archive(path, kind="x")[1]["s"]["a"]
        except ArtifactError:
            return
    assert same(found, torch.arange(50.0))


MEMORY = """
import resource, sys
from pathlib import Path
import torch
from rlsdk.storage.archive import read_archive, write_archive

path = Path(sys.argv[1])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
if sys.argv[2] == "write":
    tensors = {"a": torch.ones(40_000_000), "b": torch.zeros(40_000_000, dtype=torch.uint8)}
    before = peak()
    write_archive(path, {"kind": "x"}, {"s": tensors})
else:
    before = peak()
    tensors = read_archive(path, kind="x")[1]["s"]
    assert float(tensors["a"][-1]) == 1.0
print(peak() - before)
"""


@pytest.mark.full
def test_two_hundred_megabytes_take_no_memory(tmp_path: Path) -> None:
    for direction in ("write", "read"):
        command = [sys.executable, "-c", MEMORY, str(tmp_path / "big"), direction]
        grown = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert grown < 60.0, f"{direction} took {grown} MiB"


@pytest.mark.parametrize("large", [False, True])
def test_chunks_are_hashed_while_they_are_used(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "LARGE", 0 if large else 10**9)
    chunks = [bytes([i]) * 100_000 for i in range(20)]
    digest = hashlib.sha256()
    assert list(hashing.hash_chunks(iter(chunks), digest, 2_000_000)) == chunks
    assert digest.hexdigest() == hashlib.sha256(b"".join(chunks)).hexdigest()
    assert list(hashing.hash_chunks([], hashlib.sha256(), 0)) == []
    unfinished = hashing.hash_chunks(iter(chunks), hashlib.sha256(), 2_000_000)
    assert next(unfinished) == chunks[0]
    unfinished.close()  # as when the disk is full


def test_files_with_the_manifest_first_can_be_read(tmp_path: Path) -> None:
    written, older = tmp_path / "a.rlsdk", tmp_path / "b.rlsdk"
    write_archive(written, {"kind": "test"}, {"part": {"x": torch.arange(5.0)}})
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(older, "w") as target:
        names = source.namelist()
        assert names[-1] == "manifest.json"
        for name in reversed(names):
            target.writestr(name, source.read(name))
    _, sections = read_archive(older, kind="test")
    assert sections["part"]["x"].equal(torch.arange(5.0))


def test_writing_begins_early_only_for_large_chunks_of_real_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(files.os, "posix_fadvise", lambda _, *where: asked.append(where[:2]), raising=False)
    tensors = {"rows": torch.arange(3 * 2**20 // 8)}
    write_archive(file := io.BytesIO(), {}, {"part": tensors})
    assert not asked
    write_archive(path := tmp_path / "large.rlsdk", {}, {"part": tensors})
    ((start, size),) = asked
    assert size == 3 * 2**20
    assert path.read_bytes() == file.getvalue()
    assert path.read_bytes()[start : start + size] == tensors["rows"].numpy().tobytes()
    monkeypatch.delattr(files.os, "posix_fadvise")  # other systems than Linux
    write_archive(tmp_path / "elsewhere.rlsdk", {}, {"part": tensors})
    assert (tmp_path / "elsewhere.rlsdk").read_bytes() == file.getvalue()
