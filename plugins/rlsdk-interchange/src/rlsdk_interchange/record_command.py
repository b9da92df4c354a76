"""The command `rlsdk record-episodes`, with an agent file, --random or --human."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlsdk.cli import (
    MOST_ENVS,
    MOST_EPISODES,
    MOST_SEED,
    EnvKwargs,
    Overwrite,
    TrustedFile,
    Wrappers,
    changed_environment,
    require_free,
)
from rlsdk.errors import SettingsError, shown
from rlsdk.runtime import counted


def record_episodes_of(  # noqa: PLR0913  # options of the command
    file: Annotated[Path | None, typer.Argument(help="Agent file, or a run directory (uses its best agent).")] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Record uniformly random actions, only those that action masks allow.")
    ] = False,
    human: Annotated[
        bool, typer.Option("--human", help="Record your own actions, with keys or a gamepad (needs pygame).")
    ] = False,
    env: Annotated[str | None, typer.Option(help="gymnasium id (default: the environment of the training).")] = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    episodes: Annotated[int, typer.Option(help="Number of episodes.", min=1, max=MOST_EPISODES)] = 10,
    out: Annotated[Path, typer.Option("--out", "-o", help="Data set to write.")] = Path("demo"),
    n_envs: Annotated[
        int, typer.Option(help="Number of environments that are stepped together.", min=1, max=MOST_ENVS)
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the environments and of sampled actions.", min=0, max=MOST_SEED)
    ] = 0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use the agent's deterministic actions, instead of sampled ones.")
    ] = False,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=ACTION for --human, e.g. left=0; none=ACTION while no key is held. For Box actions:"
            " KEY=DIMENSION:VALUE, e.g. left=0:-1. Can be repeated."
        ),
    ] = None,
    overwrite: Overwrite = False,
    trust: TrustedFile = False,
) -> None:
    """Record episodes of an agent, of random actions, or of a human player to a data set."""
    if [file is not None, random, human].count(True) != 1:
        raise SettingsError("give one of: an agent file, --random, --human")
    if deterministic and file is None:
        raise SettingsError("--deterministic belongs to an agent file")
    if keys and not human:
        raise SettingsError("--keys belongs to --human")
    from rlsdk_datasets import require_place

    target = require_place(out)
    require_free(target, overwrite=overwrite)  # before any episode is run
    change = changed_environment(env, env_kwargs, wrapper)
    if human:
        written = _by_hand(change, episodes, target, seed, keys or [])
    else:
        how = {"n_envs": n_envs, "seed": seed, "deterministic": deterministic}
        written = _played(file, change, episodes, target, how, trust=trust)
    typer.echo(f"{written}: {episodes_in(written)}")


def episodes_in(file: Path) -> str:
    """Describe a data set in one line: episodes, steps and mean return."""
    from rlsdk_datasets import summary_of

    found = summary_of(file)
    return (
        f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}, mean return {found.returns.mean():.2f}"
    )


def _played(
    file: Path | None, env: str | None, episodes: int, target: Path, how: dict[str, Any], *, trust: bool
) -> Path:
    from rlsdk_interchange.recording import record_in

    if file is None:
        return record_in("random", _given(env, "--random"), episodes, target, **how)
    from rlsdk.runs import find_agent, load_agent

    agent, name = load_agent(find_agent(file), env, trust=trust)
    return record_in(agent, name, episodes, target, **how)


def _by_hand(env: str | None, episodes: int, target: Path, seed: int, keys: list[str]) -> Path:
    from rlsdk_interchange.human import record_human

    actions: dict[str, int | str] = {}
    for text in keys:
        key, equals, action = (part.strip() for part in text.partition("="))
        if not equals or not action:
            raise SettingsError(f"--keys {shown(text)} is not KEY=ACTION, e.g. --keys left=0")
        if key in actions:
            raise SettingsError(f"--keys {shown(text)}: {shown(key)} has an action already; give each key once")
        actions[key] = action
    return record_human(_given(env, "--human"), episodes, target, actions=actions, seed=seed)


def _given(env: str | None, option: str) -> str:
    """Return the environment `env`.

    Raises:
        SettingsError: no environment is given.
    """
    if env is None or env.startswith("?"):
        raise SettingsError(f"{option} needs an environment: add --env ID, for example --env CartPole-v1")
    return env
