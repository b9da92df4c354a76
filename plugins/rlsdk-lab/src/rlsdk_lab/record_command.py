"""The command `rlsdk record FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli import MOST_EPISODES, MOST_SEED, EnvKwargs, TrustedFile, Wrappers, changed_environment


def record_file(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Video to write, .mp4 or .gif.")] = Path("video.mp4"),
    env: Annotated[str | None, typer.Option(help="gymnasium id (default: the environment of the training).")] = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    episodes: Annotated[int, typer.Option(help="Number of episodes.", min=1, max=MOST_EPISODES)] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the environment and of sampled actions.", min=0, max=MOST_SEED)
    ] = 0,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions, instead of using the deterministic ones.")
    ] = False,
    trust: TrustedFile = False,
) -> None:
    """Write a video of episodes of a saved agent (needs the extra `video`)."""
    from rlsdk.runs import find_agent, load_agent
    from rlsdk_lab.video import record_video

    agent, name = load_agent(find_agent(file), changed_environment(env, env_kwargs, wrapper), trust=trust)
    done = record_video(agent, name, out, episodes=episodes, seed=seed, deterministic=not stochastic)
    returns = ", ".join(f"{value:.2f}" for value in done.returns)
    typer.echo(f"{done.path}: {done.frames} frames at {done.fps:g} per second; returns {returns}")
