"""The command `rlsdk export`: write policies for programs without rlsdk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export_policy(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    kind: Annotated[
        str | None,
        typer.Option("--format", help="onnx or torch-export (default: by the suffix of --out, otherwise onnx)."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: next to FILE).")] = None,
    masks: Annotated[
        bool | None,
        typer.Option(
            "--masks/--no-masks",
            help="Whether the exported policy takes action masks as an input.",
            show_default="if the agent was trained with them",
        ),
    ] = None,
) -> None:
    """Write the policy of an agent as ONNX or in torch's format, and a model card next to it."""
    from rlsdk.runs import find_agent
    from rlsdk_interchange.exporting import FORMATS, export, format_of, target_of

    file = find_agent(file)
    chosen = kind or format_of(out or "") or "onnx"
    stem = file.stem if file.suffix in (".rlsdk", ".zip") else file.name
    target = target_of(out or file.with_name(stem + FORMATS.get(chosen, "")), chosen)
    exported = export(file, target, chosen, masks=masks)
    typer.echo(f"{exported.path}: inputs {', '.join(exported.inputs)}; outputs {', '.join(exported.outputs)}")
    if exported.card is not None:
        typer.echo(f"{exported.card}: model card")
