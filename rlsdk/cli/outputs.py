"""Agents and data sets that commands write: none replaces another file, unless the user asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.errors import SettingsError
from rlsdk.runtime.whole_files import write_whole

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file, if there is one.")]


def require_free(target: Path, *, overwrite: bool) -> None:
    """Check that a command may write `target`.

    Raises:
        SettingsError: it is a folder, or exists and may not be replaced.
    """
    if target.is_dir():
        raise SettingsError(f"{target} is a folder; choose another --out")
    if target.exists() and not overwrite:
        raise SettingsError(f"{target} exists; choose another --out, or add --overwrite")


def write_agent(out: Path, data: bytes, *, overwrite: bool) -> Path:
    """Write the bytes of an agent file. Return its path: `out`, with the suffix `.rlsdk` added if it has none of agent files.

    A file that already holds these bytes is accepted.

    Raises:
        SettingsError: as `require_free`.
        ArtifactError: the file cannot be written, or `out` names no file.
    """
    from rlsdk.agent.agent_file import as_agent_file  # imports torch

    target = as_agent_file(out)
    if not (target.is_file() and target.read_bytes() == data):
        require_free(target, overwrite=overwrite)
    write_whole(target, data)
    return target
