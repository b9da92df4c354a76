"""The folders that sinks write into."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rlsdk.errors import SettingsError

PROBE = 4096
"""Bytes."""


def made(folder: Path) -> Path:
    """The folder, made if need be; raises SettingsError where that is not possible, or the disk is full: the thread of
    TensorBoard's writer would print a traceback."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE))
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None
    return folder


def unwritable(folder: Path, error: Exception) -> SettingsError:
    """The error for a folder that metrics cannot be written into."""
    reason = getattr(error, "strerror", None) or error
    return SettingsError(f"metrics cannot be written into {str(folder)!r}: {reason}; choose another folder")
