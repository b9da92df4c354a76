"""Reads an agent file with the Python standard library and numpy alone: `python examples/read_agent_file.py FILE`.

docs/file-format.md describes the format. A reader in another language needs the same steps.
"""

import hashlib
import json
import struct
import sys
import zipfile
from typing import Any

import numpy as np

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip


def read(path: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return (manifest, sections) of a file. A section maps paths such as "actor/trunk/0/weight" to arrays and JSON values."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        if manifest["format"] != 1:
            raise SystemExit(f"{path} has format {manifest['format']}, this reads format 1")
        members = {}
        for name, context in manifest["members"].items():
            data = archive.read(name)
            if len(data) != context["size"] or hashlib.sha256(data).hexdigest() != context["sha256"]:
                raise SystemExit(f"{path} is damaged: {name}")
            members[name] = data
    sections: dict[str, dict[str, Any]] = {}
    for name, data in members.items():
        section = sections.setdefault(name.partition(".")[0], {})
        section.update(json.loads(data) if name.endswith(".json") else tensors(data))
    return manifest, sections


def tensors(block: bytes) -> dict[str, Any]:
    """The arrays of a block in the safetensors format: the length of the header, the header (JSON), the data."""
    (length,) = struct.unpack("<Q", block[:8])
    header, found = json.loads(block[8 : 8 + length]), {}
    for name, context in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in context["data_offsets"])
        found[name] = np.frombuffer(block[start:end], DTYPES[context["dtype"]]).reshape(context["shape"])
    return found


def main() -> None:
    """Print the contents of the file that the command line names."""
    manifest, sections = read(sys.argv[1])
    print(f"{manifest['algorithm']} on {manifest['environment']}, made with {manifest['plugin']['distribution']}")
    for section, values in sections.items():
        for name, value in values.items():
            shown = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else json.dumps(value)[:60]
            print(f"{section}: {name}: {shown}")


if __name__ == "__main__":
    main()
