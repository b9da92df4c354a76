"""`rlsdk export`: policies for programs without rlsdk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.runtime.output import counted


def export_policy(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    kind: Annotated[
        str | None, typer.Option("--format", help="onnx or torch-export (default: that of --out, else onnx).")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: next to FILE).")] = None,
) -> None:
    """Write the policy of an agent as ONNX or in torch's format, and a model card next to it."""
    from rlsdk.agent import load
    from rlsdk.experiments.agent_path import agent_path
    from rlsdk.interchange.export import export, format_of, model_card
    from rlsdk.storage.archive import write_whole

    file = agent_path(file)
    agent = load(file)
    exported = export(agent, out or file.with_suffix(""), kind or format_of(out) or "onnx")
    card = exported.path.with_suffix(".md")
    write_whole(card, model_card(agent, exported, results_of(file)).encode())
    typer.echo(f"{exported.path}: inputs {', '.join(exported.inputs)}; outputs {', '.join(exported.outputs)}")
    typer.echo(f"{card}: model card")


def results_of(file: Path) -> str | None:
    """The last evaluation in the run directory around an agent file; raises SettingsError: it is damaged."""
    from rlsdk.experiments.run_record import RunRecord

    record = file.parent / "run.json"
    if file.stem != "final" or not record.is_file():
        return None
    if (final := RunRecord.read(record).final_evaluation) is None:
        return None
    return f"Mean return {final.mean:.2f} +- {final.std:.2f} over {counted(final.episodes, 'deterministic episode')}."
