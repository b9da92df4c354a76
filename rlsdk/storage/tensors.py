"""Tensors in the safetensors format, written and read in chunks, so that files may be larger than memory.

The layout is that of the safetensors library: the length of the header (8 bytes, little endian), the header (JSON: name ->
dtype, shape, offsets), the data. The library itself holds the whole block in memory when it writes or reads one.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, BinaryIO, TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import PluginError, shown
from rlsdk.tree import unflatten

CHUNK = 4 * 2**20
"""The bytes of a chunk. Smaller ones take more calls, and larger ones are slower because they do not stay in the cache."""
ALIGNMENT = 64
"""Data begin at a multiple of this many bytes in a block, and a block in a file, so that tensors can be mapped into memory."""
NAMES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class HeaderEntry(TypedDict):
    """One tensor in the header of a block."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]
    """The positions of the first byte and of the byte after the last, counted from the start of the data."""


class TensorBlock:
    """Encodes named tensors as one block of bytes, in chunks, so that the block is never in memory as a whole."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """`tensors`: name -> tensor [..] of any shape. Raises ValueError for a dtype that is not in `NAMES`."""
        # Wide numbers first: every tensor is then aligned to its element size without gaps, which the format forbids.
        self.tensors = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
        header: dict[str, object] = {}
        end = 0
        for name, tensor in self.tensors.items():
            if tensor.dtype not in NAMES:
                raise ValueError(f"tensor {name!r} is of dtype {tensor.dtype}, which files cannot hold")
            start, end = end, end + tensor.numel() * tensor.element_size()
            header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % ALIGNMENT)
        self.head = struct.pack("<Q", len(text)) + text
        self.size = len(self.head) + end

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the block in chunks of at most `CHUNK` bytes."""
        yield self.head
        for tensor in self.tensors.values():
            flat = tensor.detach().reshape(-1)
            rows = max(1, CHUNK // tensor.element_size())
            for start in range(0, len(flat), rows):
                # Moved in chunks: a GPU may hold more than the host has memory.
                chunk = flat[start : start + rows].cpu().contiguous()
                # As bytes, because numpy has no bfloat16.
                yield chunk.view(torch.uint8).numpy().data


def read_header(read: Callable[[int], bytes], size: int, *, limit: int) -> tuple[dict[str, HeaderEntry], int]:
    """(header, the position in the block where the data begin). `read(n)` returns the next n bytes of a block of `size` bytes.

    Dtypes, shapes and offsets are checked against each other and against `size`; the header may have `limit` bytes.

    Raises:
        ValueError: the block is damaged.
    """
    (length,) = struct.unpack("<Q", read(8))
    # Before reading: a damaged length could ask for any amount of memory.
    if length > min(limit, size - 8):
        raise ValueError(f"a tensor header claims {length} bytes")
    header = json.loads(read(length))
    if not isinstance(header, dict):
        raise ValueError("a tensor header is not a table")
    # The format lets other programs store texts there; it never holds a tensor.
    header.pop("__metadata__", None)
    end = 0
    # In the order of their positions, so that gaps and overlaps show.
    for name, entry in sorted(header.items(), key=lambda item: _offsets(item[1])):
        first, last = _offsets(entry)
        shape, dtype = entry.get("shape"), DTYPES.get(entry.get("dtype"))
        if dtype is None or not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"tensor {name!r} has no dtype or shape")
        if first != end or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} has offsets that do not fit its shape")
        end = last
    if 8 + length + end != size:
        raise ValueError("tensors do not fill their block")
    return header, 8 + length


def _offsets(entry: object) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise ValueError("a tensor header holds an entry without offsets")
    first, last = offsets
    return first, last


def memory_mapped(stream: IO[bytes], start: int, header: Mapping[str, HeaderEntry]) -> dict[str, Tensor]:
    """The tensors [..] of a block whose data begin at byte `start` of an open file, mapped into memory.

    Pages are read at their first use. Writing to the tensors does not change the file.
    """
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
        # Systems cannot map 0 bytes.
        if first == last:
            found[name] = torch.empty(shape, dtype=dtype)
            continue
        pages = np.memmap(cast("BinaryIO", stream), np.uint8, mode="c", offset=start + first, shape=(last - first,))
        found[name] = torch.from_numpy(pages).view(dtype).reshape(shape)
    return found


ADVICE = "state_dict() may hold tables of tensors, text, finite numbers, true, false, none and lists of these"


def require_names(node: Mapping[Any, object], place: str = "") -> None:
    """Raise PluginError if a table has a name that a file would not restore unchanged.

    Names must be text without '/'. The states of torch's optimizers may also have whole numbers as names.
    """
    numbers = node.keys() == {"state", "param_groups"}
    for name, child in node.items():
        inside = f"{place}/{name}" if place else str(name)
        if not isinstance(name, str) or not name or "/" in name:
            accepted = "names are text without '/'; rename it in state_dict()"
            raise PluginError(f"the name {shown(name)} in the state {shown(place)} cannot be stored: {accepted}")
        if not isinstance(child, Mapping):
            continue
        if numbers and name == "state":
            for number, leaf in child.items():
                if isinstance(leaf, Mapping):
                    require_names(leaf, f"{inside}/{number}")
        else:
            require_names(child, inside)


def nested_state(flat: Mapping[str, object]) -> dict[str, Any]:
    """`rlsdk.tree.unflatten`, but with whole numbers as the keys of parameters in the states of torch's optimizers.

    torch's optimizers ignore entries whose key is text.

    Raises:
        ValueError: the same name belongs to a value and to a table.
    """
    nested = unflatten(flat)
    _number_parameters(nested)
    return nested


def _number_parameters(node: dict[str, Any]) -> None:
    if node.keys() == {"state", "param_groups"} and isinstance(node["state"], dict):
        node["state"] = {int(key) if key.isdecimal() else key: value for key, value in node["state"].items()}
        return
    for child in node.values():
        if isinstance(child, dict):
            _number_parameters(child)


def as_json(section: str, values: Mapping[str, object]) -> bytes:
    """The values of a section as JSON; `values` is flat, with names joined by '/'.

    Raises:
        PluginError: JSON cannot represent a value.
    """
    for name, value in values.items():
        # JSON would write them as text
        for key in _lost_names(value):
            place = shown(f"{section}/{name}")
            raise PluginError(f"the name {shown(key)} in the state {place} cannot be stored: {ADVICE}; names are text")
    try:
        return json.dumps(values, allow_nan=False).encode()
    # Only for the message: searching each value takes much longer than writing all of them.
    except (TypeError, ValueError):
        for name, value in values.items():
            for found in _unstorable_parts(value):
                place = shown(f"{section}/{name}")
                raise PluginError(
                    f"{found} in the state {place} cannot be stored: {ADVICE}; give one of these"
                ) from None
        raise


def _lost_names(value: object) -> Iterator[object]:
    """Yield the keys that are not text, of tables at any depth in `value`."""
    if isinstance(value, Mapping):
        yield from (key for key in value if not isinstance(key, str))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _lost_names(part)


def _unstorable_parts(value: object) -> Iterator[str]:
    """Yield descriptions of the parts of `value` that JSON cannot represent, the innermost first."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        if isinstance(value, list | tuple):
            for part in value:
                yield from (f"{found} in a list" for found in _unstorable_parts(part))
        yield f"the number {value}" if isinstance(error, ValueError) else f"a value of type {type(value).__name__}"
