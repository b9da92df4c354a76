"""The commands `rlsdk record FILE` and `rlsdk watch AGENT`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rlsdk import algorithms
from rlsdk.cli import MOST_EPISODES, MOST_SEED, EnvKwargs, TrustedFile, Wrappers, changed_environment

EnvironmentId = Annotated[str | None, typer.Option(help="gymnasium id (default: the environment of the training).")]
Episodes = Annotated[int, typer.Option(help="Number of episodes.", min=1, max=MOST_EPISODES)]
Seed = Annotated[int, typer.Option(help="Seed of the environment and of sampled actions.", min=0, max=MOST_SEED)]
Stochastic = Annotated[
    bool, typer.Option("--stochastic", help="Sample actions, instead of using the deterministic ones.")
]


def record_file(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Video to write, .mp4 or .gif.")] = Path("video.mp4"),
    env: EnvironmentId = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    episodes: Episodes = 1,
    seed: Seed = 0,
    stochastic: Stochastic = False,
    trust: TrustedFile = False,
) -> None:
    """Write a video of episodes of a saved agent (needs the extra `video`)."""
    from rlsdk.runs import find_agent, load_agent
    from rlsdk_lab.video import record_video

    agent, name = load_agent(find_agent(file), changed_environment(env, env_kwargs, wrapper), trust=trust)
    done = record_video(agent, name, out, episodes=episodes, seed=seed, deterministic=not stochastic)
    returns = ", ".join(f"{value:.2f}" for value in done.returns)
    typer.echo(f"{done.path}: {done.frames} frames at {done.fps:g} per second; returns {returns}")


def watch_agent(
    file: Annotated[
        str, typer.Argument(help="Agent file, run directory, or an agent of the zoo, such as tqc/Pendulum-v1.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write this video, .mp4 or .gif, instead of opening a window.")
    ] = None,
    env: EnvironmentId = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    episodes: Episodes = 1,
    seed: Seed = 0,
    stochastic: Stochastic = False,
    trust: TrustedFile = False,
) -> None:
    """Watch an agent play in a window. Without a screen, it writes watch.gif (needs the extra `video`)."""
    with _agent_file(file) as path:
        if out is not None or not has_screen():
            target = Path("watch.gif") if out is None else out
            record_file(path, target, env, env_kwargs, wrapper, episodes, seed, stochastic, trust)
            return
        from rlsdk.environments import make_vec_env
        from rlsdk.evaluation import run_episodes
        from rlsdk.runs import load_agent

        loaded, name = load_agent(path, changed_environment(env, env_kwargs, wrapper), trust=trust)
    envs = make_vec_env(name, 1, env_kwargs={"render_mode": "human"}, vectorization="sync")
    try:
        played = run_episodes(loaded, envs, episodes, deterministic=not stochastic, seed=seed)
    finally:
        envs.close()
    typer.echo(f"{name}: returns {', '.join(f'{value:.2f}' for value in played.returns)}")


def has_screen() -> bool:
    """Whether a window can be opened: on Linux, an X or Wayland display is set."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def _agent_file(name: str) -> Iterator[Path]:
    """Yield the agent file of a file or run directory; if there is none, that of the zoo's agent of this name."""
    from rlsdk.runs import find_agent

    is_named = name.partition("/")[0] in {plugin.id for plugin in algorithms()}  # otherwise a path was meant
    if Path(name).exists() or not is_named or find_spec("rlsdk_zoo") is None:
        yield find_agent(Path(name))
        return
    import rlsdk_zoo

    with TemporaryDirectory() as folder:
        file = Path(folder) / "agent.rlsdk"
        file.write_bytes(rlsdk_zoo.find(name).read())
        yield file
