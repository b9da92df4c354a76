"""The commands `rlsdk push` and `rlsdk pull`: agents on a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli import Overwrite, TrustedFile, write_agent


def push_file(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    repo: Annotated[str, typer.Argument(help="Repository, owner/name.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    video: Annotated[bool, typer.Option("--video/--no-video", help="Also upload a video of an episode.")] = True,
    trust: TrustedFile = False,
) -> None:
    """Upload an agent file, its model card and a video to a model hub (needs the extra `hub`)."""
    from rlsdk_interchange.hub import push

    typer.echo(push(file, repo, private=private, video=video, trust=trust))


def pull_file(
    repo: Annotated[str, typer.Argument(help="Repository, owner/name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("agent.rlsdk"),
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Download an agent file from a model hub (needs the extra `hub`)."""
    from rlsdk_interchange.hub import pull

    written = write_agent(out, pull(repo, revision=revision).read_bytes(), overwrite=overwrite)
    typer.echo(f"{written}")
