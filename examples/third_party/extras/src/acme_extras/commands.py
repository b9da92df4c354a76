"""A command of the program `rlsdk`: a function that Typer accepts. The manifest lists it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.errors import SettingsError


def show_best(
    folder: Annotated[Path, typer.Argument(help="A run directory of a training with `--logger best`.")],
) -> None:
    """Print the best value of every metric of a run."""
    try:
        best = json.loads((folder / "best.json").read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{folder} holds no best.json ({error}); train with --logger best") from None
    for name, entry in best.items():
        typer.echo(f"{name}: {entry['value']:g} at step {entry['step']}")
