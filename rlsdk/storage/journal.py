"""Replay buffers written in parts: a checkpoint writes only the rows since the previous checkpoint.

A part is a file with the rows since the previous part. A checkpoint lists the names of the parts of its replay buffer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, fitting
from rlsdk.interfaces import State
from rlsdk.runtime.process import count_in
from rlsdk.storage.archive import inspect_archive, read_archive, shapes_in, write_archive

KIND = "rlsdk-replay-rows"
FOLDER = "replay"
PART = re.compile(r"\d{12,19}-[0-9a-f]{8}\.rlsdk")
"""The form of the names of part files; files with other names are not read."""
SETTLED = 3
"""This row, counted from the newest, and all before it never change; the newer ones may."""
RING = {"head", "filled", "written", "leaves"}
"""The keys of the state of a ring buffer of rows. Row number r of all rows ever written is at position r modulo the length."""


@attrs.frozen
class ReplayPart:
    """The file `name` with the rows `start` to `end` (exclusive), numbered from the first row ever written."""

    name: str
    start: int
    end: int


class Journal:
    """Writes the parts of the replay buffer of one training into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[ReplayPart] = []
        self._probe: dict[str, Tensor] = {}
        """The row `SETTLED` before the end of the last part, by which a buffer is recognized as the same."""

    def write(self, state: State) -> tuple[dict[str, object], list[str]]:
        """(the state without its rows, the names of the parts that hold the rows). New rows are written to one more part.

        The state of a buffer that is empty or not a ring buffer of rows is returned unchanged, without parts.

        Raises:
            ArtifactError: the folder cannot be written.
        """
        ring = _ring(state)
        if ring is None:
            return dict(state), []
        flat, empty = _rows(ring["leaves"])
        size = len(next(iter(flat.values())))
        # plus 1 if a row holds only the newest observation
        end = int(ring["written"]) + (size - int(ring["filled"]))
        if not self._continues(flat, size, end):
            self.parts = []
        before = self.parts[-1].end if self.parts else 0
        # The newest rows of the last part may have changed since it was written, so they are written again.
        start = max(0, before - SETTLED + 1, end - size)
        rows = torch.arange(start, end) % size
        # A random part of the name: two trainings with one folder must not replace each other's files.
        part = ReplayPart(f"{end:012d}-{secrets.token_hex(4)}.rlsdk", start, end)
        leaves = {name: leaf.index_select(0, rows.to(leaf.device)) for name, leaf in flat.items()}
        write_archive(
            self.folder / part.name,
            {"kind": KIND, "start": start, "end": end},
            {"rows": tree.unflatten({**leaves, **empty})},
        )
        # The ring has overwritten all rows of the older parts.
        self.parts = [old for old in self.parts if old.end > end - size] + [part]
        # A copy, because later rows overwrite the memory of the ring.
        self._probe = {name: leaf[(end - SETTLED) % size].clone() for name, leaf in flat.items()}
        slim = {name: value for name, value in ring.items() if name != "leaves"}
        return _with_ring(state, {**slim, "size": size}), [each.name for each in self.parts]

    def _continues(self, flat: Mapping[str, Tensor], size: int, end: int) -> bool:
        """Whether the parts hold the older rows of the buffer with the leaves `flat` [size, ..].

        Another agent has other rows, and so has a buffer that was read from a file. Another training may have deleted parts.
        """
        row = self.parts[-1].end - SETTLED if self.parts else -1
        if not max(0, end - size) <= row < end - SETTLED + 1 or self._probe.keys() != flat.keys():
            return False
        same = all(torch.equal(leaf[row % size], self._probe[name]) for name, leaf in flat.items())
        return same and all((self.folder / part.name).exists() for part in self.parts)

    def clear(self, used: Iterable[str]) -> None:
        """Delete the parts in the folder that are neither in `used` (names in checkpoints) nor current parts."""
        # Current parts too: the next checkpoint names them again, also if no file does now.
        wanted = {*used, *(part.name for part in self.parts)}
        for path in self.folder.glob("*.rlsdk"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)


def join_parts(state: State, folder: Path, names: Iterable[str]) -> dict[str, object]:
    """The state with its rows, which are read from the parts called `names` in `folder`.

    Raises:
        ArtifactError: a part is missing or damaged, or the parts do not hold exactly the rows of the state.
    """
    ring = _ring(state, RING - {"leaves"} | {"size"})
    if ring is None:
        raise ArtifactError("the file names parts of a replay buffer, but holds none they belong to")
    with fitting("the file's replay buffer is damaged"):
        size, filled, written = (count_in(ring, name) for name in ("size", "filled", "written"))
    end = written + size - filled
    names = list(names)
    # All headers first: a small file could otherwise cause any amount of work and memory use.
    _require_parts(folder, names, end - size, end)
    leaves: dict[str, Tensor] = {}
    empty: dict[str, object] = {}
    known = end - size
    for name in names:
        document, sections = read_archive(folder / name, kind=KIND)
        start, stop = count_in(document, "start"), count_in(document, "end")
        flat, empty = _rows(sections.get("rows"))
        if not start <= known <= stop <= end or any(len(leaf) != stop - start for leaf in flat.values()):
            raise ArtifactError(f"the replay buffer's parts in {folder} do not join: {name} has rows {start} to {stop}")
        kinds = {key: (leaf.dtype, leaf.shape[1:]) for key, leaf in flat.items()}
        if leaves and kinds != {key: (leaf.dtype, leaf.shape[1:]) for key, leaf in leaves.items()}:
            raise ArtifactError(
                f"the replay buffer's parts in {folder} do not join: {name} has other columns than the first"
            )
        for key, leaf in flat.items():
            whole = leaves.setdefault(key, leaf.new_empty((size, *leaf.shape[1:])))
            first = max(start, end - size)
            whole[torch.arange(first, stop) % size] = leaf[first - start :]
        known = stop
    if known != end:
        raise ArtifactError(f"the replay buffer's parts in {folder} end at row {known}, not {end}")
    whole_ring = {name: value for name, value in ring.items() if name != "size"}
    return _with_ring(state, {**whole_ring, "leaves": tree.unflatten({**leaves, **empty})})


def _rows(leaves: object) -> tuple[dict[str, Tensor], dict[str, object]]:
    """(leaves [R, ..] of a table of rows, empty tables such as the carry of a policy without memory), each by names joined
    with '/'."""
    flat = tree.flatten(leaves) if isinstance(leaves, Mapping) else {}
    rows = {name: leaf for name, leaf in flat.items() if isinstance(leaf, Tensor)}
    empty = {name: leaf for name, leaf in flat.items() if isinstance(leaf, Mapping)}
    if not rows or len(rows) + len(empty) < len(flat):
        raise ArtifactError("the file's replay buffer is damaged: its rows are not tensors; take another copy")
    return rows, dict[str, object](empty)


def _require_parts(folder: Path, names: list[str], begin: int, end: int) -> None:
    """Check the names and headers of the parts before any row is read: each must hold some of the rows `begin` to `end`, and
    together they must hold all. Without this check a small file could cause any amount of work and memory use."""
    # The names come from a file. One with a `/` could lead out of the folder.
    if len({*names}) != len(names) or not all(map(PART.fullmatch, names)):
        raise ArtifactError("the file is damaged: its manifest names no parts of a replay buffer")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ArtifactError(
            f"{len(missing)} of {len(names)} parts of the replay buffer are missing in {folder}, such as {missing[0]}; restore"
            " that folder, or take another checkpoint; loading without env needs no replay buffer"
        )
    known = begin
    for name in names:
        document = inspect_archive(folder / name, kind=KIND)
        with fitting(f"{folder / name} is damaged"):
            start, stop = count_in(document, "start"), count_in(document, "end")
            rows = {shape[0] for shape in shapes_in(document)["rows"].values()}
        # A checkpoint without new steps has a part that ends where the one before it ends.
        if not (start <= known < stop <= end and rows == {stop - start}) and known != stop:
            raise ArtifactError(f"the replay buffer's parts in {folder} do not join: {name} has rows {start} to {stop}")
        known = stop
    if known != end:
        raise ArtifactError(f"the replay buffer's parts in {folder} end at row {known}, not {end}")


def _ring(state: State, keys: set[str] = RING) -> State | None:
    """The state of the ring buffer in a buffer's state, directly or under the key `memory`; None if it is empty or another kind
    of buffer."""
    if keys <= set(state):
        return state if state["filled"] else None
    inner = state.get("memory")
    return _ring(inner, keys) if isinstance(inner, Mapping) else None


def _with_ring(state: State, ring: dict[str, object]) -> dict[str, object]:
    return {**state, "memory": _with_ring(state["memory"], ring)} if "memory" in state else ring
