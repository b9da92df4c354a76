"""`rlsdk plot RUN...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot_curves(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write.")] = Path("curves.png"),
    metric: Annotated[str | None, typer.Option(help="Metric (default: evaluations where all runs have them).")] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis: steps, episodes or hours.")] = "steps",
    smooth: Annotated[int, typer.Option(help="Points a running mean goes over; 1 = none.", min=1)] = 1,
) -> None:
    """Draw learning curves; runs of the same algorithm and environment become one line with a band over their seeds."""
    from rlsdk.experiments.plotting import plot_runs

    for line in plot_runs(runs, out, metric=metric, x=x, smooth=smooth):
        typer.echo(line)
    typer.echo(f"picture: {out}")
