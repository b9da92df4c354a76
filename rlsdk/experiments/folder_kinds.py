"""What the folder of a command holds: each command writes a file that the others recognise."""

from __future__ import annotations

from pathlib import Path

from rlsdk.errors import SettingsError

RUN, SEEDS, BENCH, SEARCH = "run.json", "sweep.json", "bench.json", "journal.log"
KINDS = {
    RUN: "a run of `rlsdk run`",
    SEEDS: "runs of `rlsdk run --seeds`",
    BENCH: "the runs of `rlsdk bench`",
    SEARCH: "a search of `rlsdk tune`",
}


def require_kind(folder: Path, own: str) -> None:
    """Check a folder before a command whose file is `own` writes into it.

    Raises:
        SettingsError: another command wrote into it; the files of both would mix.
    """
    for name, held in KINDS.items():
        if name != own and (folder / name).exists():
            raise SettingsError(f"{folder} holds {held}; choose another --out")
