"""The commands `rlsdk import-lerobot` and `rlsdk export-lerobot`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli import Overwrite, require_free
from rlsdk.runtime import counted


def import_episodes(
    source: Annotated[Path, typer.Argument(help="Folder of the data set of LeRobot.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Data set to write.")],
    env: Annotated[
        str | None, typer.Option(help="Environment whose spaces the data have (default: from the data).")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a data set of LeRobot to a data set of rlsdk. Numbers only: videos and texts are left out."""
    from rlsdk_datasets import require_place, summary_of
    from rlsdk_lerobot.importing import import_lerobot

    target = require_place(out)
    require_free(target, overwrite=overwrite)
    # one line each, without the place in the code
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        written = import_lerobot(source, target, env)
    for note in notes:
        typer.echo(f"note: {note.message}", err=True)
    found = summary_of(written)
    typer.echo(
        f"{written}: {counted(found.episodes, 'episode')}, {counted(found.steps, 'step')},"
        f" mean return {found.returns.mean():.2f}"
    )


def export_episodes(
    dataset: Annotated[Path, typer.Argument(help="Data set, as record-episodes writes it.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to make.")],
    task: Annotated[str, typer.Option(help="What is done, in words (default: the environment).")] = "",
    fps: Annotated[int, typer.Option(help="Frames per second.")] = 30,
) -> None:
    """Write a data set as a data set of LeRobot, version 3.0."""
    from rlsdk_lerobot.exporting import export_lerobot

    typer.echo(f"{export_lerobot(dataset, out, task=task, fps=fps)}: data set of LeRobot, v3.0")
