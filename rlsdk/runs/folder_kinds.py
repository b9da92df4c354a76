"""Which command wrote a folder: each command writes a file by which the others recognise it."""

from __future__ import annotations

from pathlib import Path

from rlsdk.errors import SettingsError

RUN, SEEDS = "run.json", "sweep.json"
KINDS = {
    RUN: "a run of `rlsdk run`",
    SEEDS: "runs of `rlsdk run --seeds`",
    "bench.json": "the runs of `rlsdk bench`",
    "journal.log": "a search of `rlsdk tune`",
}


def require_kind(folder: Path, own: str) -> None:
    """Check a folder before a command whose file is `own`, such as `run.json`, writes into it.

    Raises:
        SettingsError: another command wrote into the folder. The files of both commands would mix.
    """
    for name, held in KINDS.items():
        if name != own and (folder / name).exists():
            raise SettingsError(f"{folder} holds {held}; choose another --out")
