"""Find the agent file that a path on the command line refers to."""

from __future__ import annotations

from pathlib import Path

from rlsdk.errors import SettingsError


def find_agent(path: Path) -> Path:
    """Return the agent file at `path`, which may be given without its suffix.

    For a run directory, return the best agent, else the final agent, else the newest checkpoint.

    Raises:
        SettingsError: nothing has this name, or it is a folder without an agent.
    """
    named = next((file for suffix in ("", ".rlsdk", ".zip") if (file := Path(f"{path}{suffix}")).is_file()), None)
    if named is not None:
        return named
    if not path.exists():
        raise SettingsError(
            f"there is no file or folder {path}; name an agent file, or a directory that `rlsdk run` wrote"
        )
    if not path.is_dir():  # a pipe or a device: reading it raises an error later
        return path
    checkpoints = sorted((path / "checkpoints").glob("step_*.rlsdk"), reverse=True)
    for file in (path / "best.rlsdk", path / "final.rlsdk", *checkpoints):
        if file.is_file():
            return file
    below = sorted(inner.parent for inner in path.glob("*/final.rlsdk"))
    hint = f"name one of its runs, such as {below[0]}" if below else "name an agent file, or a run directory"
    raise SettingsError(f"{path} is a folder that holds no agent itself; {hint}")
