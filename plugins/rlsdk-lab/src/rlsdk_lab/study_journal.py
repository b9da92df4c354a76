"""The journal of a search: Optuna's file, a line for each change of the study."""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.errors import RlsdkError, SettingsError, one_line
from rlsdk.runs import RunDirectory
from rlsdk.runtime import counted, write_whole

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
"""The file of the journal, by which commands recognize the folder of a search."""
BEGINS = b'{"op_code":'
"""Of every line."""
FIRST = BEGINS + b"0,"
"""Of the first line, which makes the study."""


def study_storage(folder: Path) -> optuna.storages.BaseStorage:
    """The storage of the study in `folder`, which is made where there is none.

    Raises:
        SettingsError: the folder cannot be written, or holds something else.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    RunDirectory(folder).require_kind(JOURNAL)
    journal = folder.resolve() / JOURNAL  # Optuna's lock is a link to it: as a relative one it would lead nowhere
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_lost_lock(journal)
        if journal.exists():
            _drop_broken_lines(journal)
        return JournalStorage(JournalFileBackend(str(journal)))
    except OSError as error:
        raise SettingsError(f"cannot write into {folder}: {error.strerror}; choose another --out") from None


@contextlib.contextmanager
def faults_of_journal(folder: Path) -> Iterator[None]:
    """Turn errors of Optuna in the block into one line: nothing but the journal in `folder` causes them. It reads the journal
    again at every step, and its errors for what a damaged one holds are those of its code, such as KeyError.

    Raises:
        SettingsError: the journal is damaged, or cannot be written, for example because the disk is full.
    """
    try:
        yield
    except (RlsdkError, ImportError):
        raise
    except OSError as error:
        raise SettingsError(
            f"cannot write {folder / JOURNAL}: {error.strerror or error}; the same command continues when there is space"
        ) from None
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {' '.join(str(error).split())}", 200)
        raise SettingsError(
            f"{folder / JOURNAL} is damaged ({reason}); restore a copy of it, or choose another --out"
        ) from None


def require_sound(trials: list[optuna.trial.FrozenTrial]) -> None:
    """Check what Optuna does not check when it reads the journal, and needs in samplers and pruners.

    Raises:
        ValueError: a value, an intermediate value or a parameter of a finished trial is none.
    """
    for trial in trials:
        numbers = [*(trial.values or ()), *trial.intermediate_values.values()]
        if not all(type(number) in (int, float) and not math.isnan(number) for number in numbers):
            raise ValueError(f"trial {trial.number} has a return that is not a number")
        if trial.state.name == "COMPLETE" and len(trial.values or ()) != 1:
            raise ValueError(f"trial {trial.number} is complete, and has no return")
        if not all(type(step) is int for step in trial.intermediate_values):
            raise ValueError(f"trial {trial.number} has an evaluation at no step")
        for name, distribution in trial.distributions.items():
            if not _is_in(distribution, trial.params[name]):
                raise ValueError(f"trial {trial.number} has {name} = {trial.params[name]}, outside of its range")


def _is_in(distribution: optuna.distributions.BaseDistribution, value: Any) -> bool:
    """Whether a parameter is in its range. Raises TypeError if it is not a number although the range has bounds."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return bool(distribution.low <= value <= distribution.high)
    return False


def _drop_lost_lock(journal: Path) -> None:
    """Remove a lock that leads nowhere: Optuna would wait for its end forever, and take a processor for that. Earlier versions
    left such locks when they were killed. Another lock that is left is removed by Optuna after half a minute."""
    lock = journal.with_name(f"{journal.name}.lock")
    if lock.is_symlink() and not lock.exists():
        lock.unlink(missing_ok=True)


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
        foreign = any(not (line.startswith(BEGINS) or BEGINS.startswith(line)) for line in lines)
        if foreign or not all(line.startswith(FIRST) for line in whole[:1]):
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
