"""Files that another training left in the folder of this one: they are moved aside, never replaced or deleted."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlsdk.errors import ArtifactError
from rlsdk.runtime.output import counted
from rlsdk.storage.archive import AGENT_KIND
from rlsdk.storage.factory import inspect
from rlsdk.training.trained_agent import TrainedAgent

ASIDE = "earlier"
"""The folders of earlier files are `earlier_1`, `earlier_2` and so on, each beside the files that were moved there."""


def belongs(path: Path, agent: TrainedAgent) -> bool:
    """Whether an agent file was written by the training that `agent` now continues, at or before its current step.

    A training that begins at step 0 has written no file yet. A damaged file belongs to no training.
    """
    with contextlib.suppress(ArtifactError):
        found, steps = inspect(path, kind=AGENT_KIND), agent.num_timesteps
        own = (found.get("algorithm"), found.get("seed")) == (agent.spec.id, agent.seed)
        written = found.get("num_timesteps")
        return own and steps > 0 and isinstance(written, int) and written <= steps
    return False


def set_aside(files: Iterable[Path], parts: Mapping[str, Path] | None = None) -> None:
    """Move existing files into the next free folder `earlier_N` beside them, and warn.

    Args:
        files: the files of another training. Those that do not exist are left out.
        parts: path inside `earlier_N` -> file that the moved files need there too. It also stays where it is.

    Raises:
        ArtifactError: a file cannot be moved.
    """
    found = sorted(filter(Path.exists, files), key=lambda path: (path.parent, path.name))
    for folder, moved in itertools.groupby(found, lambda path: path.parent):
        paths = list(moved)
        try:
            place = _free(folder)
            for name, part in (parts or {}).items():
                _link(part, place / name)
            for path in paths:
                os.replace(path, place / path.name)
        except OSError as error:
            raise ArtifactError(
                f"{folder} holds {paths[0].name} of another training, which cannot be moved aside: {error.strerror or error};"
                " choose another folder"
            ) from None
        more = f" and {counted(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        warnings.warn(
            f"{paths[0]}{more} would be replaced by this training; moved to {place}, so that nothing is lost; use another"
            " folder for each training",
            stacklevel=2,
        )


def _free(folder: Path) -> Path:
    """Make the first folder `earlier_N` that does not exist, and return it."""
    for number in itertools.count(1):
        place = folder / f"{ASIDE}_{number}"
        with contextlib.suppress(FileExistsError):
            place.mkdir()
            return place
    raise AssertionError


def _link(part: Path, place: Path) -> None:
    """Make the file `part` also available as `place`: without a copy where the file system can."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # the file that needs it was not whole before
        try:
            os.link(part, place)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(part, place)
