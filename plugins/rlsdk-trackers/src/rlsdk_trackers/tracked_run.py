"""A small file in a run directory that names the tracker's run. A resumed training continues that run."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path

import attrs

from rlsdk.errors import SettingsError, shown

NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_BYTES = 10_000


@attrs.define
class TrackedRun:
    """One run of a tracker, as the file describes it."""

    path: Path
    """The path of the file."""
    id: str
    """The tracker's id of the run."""
    name: str
    """The name that the tracker shows."""
    project: str
    last_step: int = -1
    """The latest environment step that was written; -1 before the first."""

    @staticmethod
    def new(path: Path, name: str, project: str) -> TrackedRun:
        """Make a new run, which the tracker does not have yet."""
        return TrackedRun(path=path, id=secrets.token_hex(8), name=name, project=project)

    @staticmethod
    def read(path: Path) -> TrackedRun | None:
        """Read the run from the file at `path`. Returns None if there is no file.

        Raises:
            SettingsError: the file is damaged.
        """
        if not path.exists():
            return None
        try:
            with path.open("rb") as stream:
                table = json.loads(stream.read(MOST_BYTES))
            found = {field: table[field] for field in ("id", "name", "project", "last_step")}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise _damaged(path, "it is not what a tracker wrote") from None
        texts, step = [found["id"], found["name"], found["project"]], found["last_step"]
        if not all(isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable() for text in texts):
            raise _damaged(path, "id, name and project must be short texts")
        if not NAMES.fullmatch(found["id"]):
            raise _damaged(path, f"{shown(found['id'], 60)} is not the id of a run")
        if not isinstance(step, int) or isinstance(step, bool) or step < -1:
            raise _damaged(path, f"last_step {shown(step, 60)} is not a number of steps")
        return TrackedRun(path=path, **found)

    def store(self) -> None:
        """Write the file. It is replaced in one step, so it is never incomplete."""
        table = {"id": self.id, "name": self.name, "project": self.project, "last_step": self.last_step}
        temporary = self.path.with_suffix(".json.part")
        temporary.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def _damaged(path: Path, why: str) -> SettingsError:
    return SettingsError(f"{path} is damaged: {why}; remove the file to begin another run in the tracker")
