"""Entries of an uncompressed zip file: aligning their data, and reading them without computing a CRC."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator

from rlsdk.storage.tensors import ALIGNMENT, CHUNK

_PADDING_FIELD = 0x4252
_ZIP64_FIELD = 20
_LOCAL_FORMAT = "<4s5H3L2H"
_LOCAL_HEADER = struct.calcsize(_LOCAL_FORMAT)
"""The bytes of a zip entry's header before its name. Its last two fields are the lengths of the name and of the extra field."""


def padding(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """An extra field that makes the entry's data begin at a multiple of `ALIGNMENT` bytes."""
    assert archive.fp is not None
    sizes = _ZIP64_FIELD if info.file_size * 1.05 > zipfile.ZIP64_LIMIT else 0  # the rule of zipfile for large entries
    before = archive.fp.tell() + _LOCAL_HEADER + len(info.filename.encode()) + sizes + 4
    return struct.pack("<HH", _PADDING_FIELD, -before % ALIGNMENT) + bytes(-before % ALIGNMENT)


def stored(archive: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    """Yield the bytes of an uncompressed member without computing the CRC as zipfile does; callers check a digest instead.

    Raises:
        BadZipFile: the entry's header is damaged.
    """
    info, stream = archive.getinfo(member), archive.fp
    assert stream is not None
    archive.open(member).close()  # checks the header
    stream.seek(info.header_offset)
    *_, name, extra = struct.unpack(_LOCAL_FORMAT, stream.read(_LOCAL_HEADER))
    stream.seek(name + extra, io.SEEK_CUR)
    left = info.file_size
    while left and (chunk := stream.read(min(left, CHUNK))):
        left -= len(chunk)
        yield chunk
