"""The journal of a search: Optuna's file, a line for each change of the study."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.errors import SettingsError
from rlsdk.experiments.folder_kinds import SEARCH, require_kind
from rlsdk.runtime.output import counted
from rlsdk.runtime.whole_files import write_whole

if TYPE_CHECKING:
    import optuna

BEGINS = b'{"op_code":'
"""Of every line."""


def study_storage(folder: Path) -> optuna.storages.BaseStorage:
    """The storage of the study in `folder`, which is made where there is none.

    Raises:
        SettingsError: the folder cannot be written, or holds something else.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    require_kind(folder, SEARCH)
    journal = folder / SEARCH
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if journal.exists():
            _drop_broken_lines(journal)
        return JournalStorage(JournalFileBackend(str(journal)))
    except OSError as error:
        raise SettingsError(f"cannot write into {folder}: {error.strerror}; choose another --out") from None


def _drop_broken_lines(journal: Path) -> None:
    """Leave out lines of which a full disk or a kill left a part: no change of the study came of them, and Optuna refuses the
    file, or writes the next line behind such a part.

    Raises:
        SettingsError: a line is not of a journal. OSError: the file cannot be read.
    """
    from optuna.storages.journal import JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(str(journal))  # other processes may write to the study
    lock.acquire()
    try:
        lines = journal.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if _is_whole(line)]
        if any(not (line.startswith(BEGINS) or BEGINS.startswith(line)) for line in lines):
            raise SettingsError(f"{journal} is damaged, or not of a search; choose another --out")
        if len(whole) < len(lines):
            write_whole(journal, b"".join(whole))
            broken = counted(len(lines) - len(whole), "line")
            warnings.warn(f"{journal}: {broken} of which only a part was written left out", stacklevel=2)
    finally:
        lock.release()


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n")
