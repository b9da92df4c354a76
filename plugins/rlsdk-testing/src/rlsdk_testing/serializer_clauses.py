"""Clauses about the serializer that stores a plugin's agents."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.agent import SafetensorsSerializer
from rlsdk.errors import ArtifactError
from rlsdk_testing.kit import clause, require
from rlsdk_testing.strategies import examples, tensors
from rlsdk_testing.subject import Subject, differing, flat_state

NAMES = st.text("abcxyz_.", min_size=1, max_size=5)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), NAMES
)


@clause(
    "serializer.round-trip",
    "load() returns exactly what save() wrote: names, dtypes, shapes and values, bit for bit. inspect() lists"
    " the names.",
    "In the serializer, write each tensor's name, dtype, shape and bytes unchanged, and list the same names in"
    " `inspect`.",
)
def round_trip(subject: Subject) -> None:
    serializer = SafetensorsSerializer()

    @examples
    @given(st.dictionaries(NAMES, tensors(), max_size=4), st.dictionaries(NAMES, VALUES, max_size=4))
    def check(stored: dict[str, torch.Tensor], document: dict[str, object]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file.rlsdk"
            serializer.save(path, stored, document)
            loaded, read = serializer.load(path)
            listed = serializer.inspect(path)
        require(read == document, f"the document {document} came back as {read}")
        require(not differing(stored, loaded), f"tensors differ: {differing(stored, loaded)}")
        require(all(loaded[n].dtype == t.dtype for n, t in stored.items()), "a dtype changed")
        tables = listed.get("tensors")
        names = sorted(tables) if isinstance(tables, Mapping) else []
        require(names == sorted(stored), f"inspect() lists {names}")

    check()


@clause(
    "serializer.damage-refused",
    "A damaged or truncated agent file raises ArtifactError, or loads exactly what was saved.",
    "Raise ArtifactError in `load` of the serializer, or in `load_state_dict` of the part, if a digest, a"
    " shape or a name does not match.",
)
def damage_refused(subject: Subject) -> None:
    agent = subject.agent()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.rlsdk"
        agent.save(path)
        data = path.read_bytes()
        kind, saved = type(agent), flat_state(agent)

        def attempt(position: int, change: int, truncate: bool) -> None:
            damaged = bytearray(data)
            damaged[position] ^= change
            path.write_bytes(bytes(damaged[:position]) if truncate else bytes(damaged))
            try:
                loaded = kind.load(path)
            except ArtifactError:
                return
            wrong = differing(flat_state(loaded), saved)
            require(not wrong, f"byte {position} ^ {change} (truncate={truncate}) loaded something else: {wrong[:3]}")

        for position in _inside_members(data):
            attempt(position, 1, truncate=False)
        positions, changes = st.integers(0, len(data) - 1), st.integers(1, 255)
        examples(given(positions, changes, st.booleans())(attempt))()


def _inside_members(data: bytes) -> list[int]:
    """Return one position inside each member of a zip archive. Random positions might miss the members with the weights."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        ends = [*(info.header_offset for info in archive.infolist()[1:]), archive.start_dir]
        return [end - max(1, info.compress_size // 2) for end, info in zip(ends, archive.infolist(), strict=True)]
