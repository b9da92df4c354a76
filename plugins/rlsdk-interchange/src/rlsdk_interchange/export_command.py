"""The command `rlsdk export`: write policies for programs without rlsdk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.runtime import counted


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
    from rlsdk import load
    from rlsdk.runs import find_agent
    from rlsdk_interchange.exporting import FORMATS, export, format_of, target_of

    file = find_agent(file)
    chosen = kind or format_of(out) or "onnx"
    stem = file.stem if file.suffix in (".rlsdk", ".zip") else file.name
    target = target_of(out or file.with_name(stem + FORMATS.get(chosen, "")), chosen)
    exported = export(load(file), target, chosen, masks=masks, results=results_of(file))
    typer.echo(f"{exported.path}: inputs {', '.join(exported.inputs)}; outputs {', '.join(exported.outputs)}")
    if exported.card is not None:
        typer.echo(f"{exported.card}: model card")


def results_of(file: Path) -> str | None:
    """Return a sentence with the evaluation of an agent of a run, `final.rlsdk` or `best.rlsdk`; None for other files.

    Raises:
        SettingsError: the record of the run is damaged.
    """
    from rlsdk.runs import RunDirectory

    directory = RunDirectory(file.parent)
    if not directory.record.is_file() or file not in (directory.final, directory.best):
        return None
    record = directory.read_record()
    if file == directory.best and math.isfinite(best := directory.best_evaluation()):
        episodes = counted(record.eval_episodes, "deterministic episode")
        return f"Mean return {best:.2f} over {episodes}, the best evaluation during training."
    if file == directory.best or (final := record.final_evaluation) is None:
        return None
    return f"Mean return {final.mean:.2f} +- {final.std:.2f} over {counted(final.episodes, 'deterministic episode')}."
