"""The command `rlsdk compare A B`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.errors import one_line


def compare_runs(
    a: Annotated[Path, typer.Argument(help="Folder with finished runs.")],
    b: Annotated[Path, typer.Argument(help="Folder with the runs to compare them with.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare two sets of runs: differences with intervals, and the probability that one is better."""
    from rlsdk_lab import compare, scores_below

    found = compare(scores_below(a), scores_below(b))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
        return
    typer.echo(f"A = {a}\nB = {b}")
    width = max(len(one_line(row.env)) for row in found.rows) + 2
    typer.echo(
        f"{'':<{width}}{'runs':>8}{'mean of A':>12}{'mean of B':>12}{'P(A > B)':>10}{'p':>8}  A - B [95 % interval]"
    )
    for row in found.rows:
        counts = f"{row.runs[0]}, {row.runs[1]}"
        typer.echo(
            f"{one_line(row.env):<{width}}{counts:>8}{row.means[0]:>12.4g}{row.means[1]:>12.4g}{row.better:>10.2f}{row.p_value:>8.2g}"
            f"  {row.difference if min(row.runs) > 1 else f'{row.difference.value:.4g} [one run has none]'}"
        )
    if found.left_out:
        typer.echo(f"left out, not in both: {', '.join(found.left_out)}")
    typer.echo(found.verdict())
