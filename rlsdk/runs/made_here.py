"""Records of runs that this user made on this machine. They may name what the record of someone else may not.

A record has a seal: a keyed hash of its content and of its folder. The key is a file that only this user can read, outside of
all runs. So a record that was changed, copied to another folder or written by someone else has no valid seal.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rlsdk.errors import SettingsError
from rlsdk.experiments.folder_kinds import RUN
from rlsdk.experiments.stored_tables import read_table

SEAL = "made_here"
"""The entry of a record with its seal."""
KEY, SIZE = "key", 32
"""The file with the key, and its size in bytes."""


def sealed(file: Path, table: Mapping[str, object]) -> dict[str, object]:
    """Return the content `table` of the record `file` with its seal; without one if there is no place for a key."""
    plain, key = json.loads(json.dumps(table)), _key(make=True)
    return plain if key is None else {**plain, SEAL: _seal(key, file, plain)}


def record_made_here(file: Path) -> dict[str, object] | None:
    """Return the content of the record `file`, if this user wrote it on this machine, in this folder; else None."""
    try:
        table = read_table(file)
    except SettingsError:
        return None
    key, seal = _key(make=False), table.pop(SEAL, None)
    if key is None or not isinstance(seal, str):
        return None
    return table if hmac.compare_digest(_seal(key, file, table).encode(), seal.encode("utf-8", "replace")) else None


def vouched_for(file: Path, env: str) -> bool:
    """Whether `file`, in a run directory or its checkpoints, names the environment of a run that this user made here.

    The other content of an agent file or settings file needs no seal: it cannot make rlsdk import or write anything.
    """
    try:
        folder = file.resolve().parent
        record = record_made_here((folder.parent if folder.name == "checkpoints" else folder) / RUN)
        return record is not None and record.get("env") == env
    except (OSError, RuntimeError):  # RuntimeError: a cycle of symbolic links
        return False


def _seal(key: bytes, file: Path, table: Mapping[str, object]) -> str:
    place = file.parent.resolve() / file.name  # a link in another folder to a record is not that record
    content = json.dumps([str(place), table], sort_keys=True)
    return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def state_folder() -> Path:
    """Return the folder of files that rlsdk stores for this user: `XDG_STATE_HOME/rlsdk`, or the system's usual place.

    Raises:
        RuntimeError: the user has no home.
    """
    if chosen := os.environ.get("XDG_STATE_HOME"):
        return Path(chosen) / "rlsdk"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "rlsdk"
    return Path.home() / ".local" / "state" / "rlsdk"


def _key(*, make: bool) -> bytes | None:
    """Return the key of this user, made if there is none and `make`; None if there is none, or if others can read it."""
    with contextlib.suppress(OSError, RuntimeError):
        path = state_folder() / KEY
        if make and not path.exists():
            _make_key(path)
        return _read_key(path)
    return None


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent) as stream:  # only this user can read it
        stream.write(secrets.token_bytes(SIZE))
        stream.flush()
        with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
            os.link(stream.name, path)


def _read_key(path: Path) -> bytes | None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as stream:
        found, key = os.fstat(handle), stream.read(SIZE + 1)
    private = os.name == "nt" or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
    return key if stat.S_ISREG(found.st_mode) and private and len(key) == SIZE else None
