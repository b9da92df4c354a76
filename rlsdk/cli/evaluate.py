"""`rlsdk eval FILE`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlsdk.errors import SettingsError

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.evaluation.evaluate import Evaluation


def evaluate_file(
    file: Annotated[Path, typer.Argument(help="Agent file.")],
    env: Annotated[str | None, typer.Option(help="gymnasium id (default: the one it was trained on).")] = None,
    episodes: Annotated[int, typer.Option(help="Episodes to play.", min=1)] = 20,
    n_envs: Annotated[int, typer.Option(help="Environments stepped together.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the environments and of sampled actions.")] = 0,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions instead of playing the mode.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every episode.")] = False,
) -> None:
    """Play episodes with a saved agent and report the returns."""
    import rlsdk
    from rlsdk.environments import make_vec_env
    from rlsdk.evaluation.evaluate import run_episodes

    agent = rlsdk.load(file)
    name = environment_of(agent, env)
    result = run_episodes(agent, make_vec_env(name, n_envs), episodes, deterministic=not stochastic, seed=seed)
    if as_json:
        context = {"env": name, "mean": result.mean, "std": result.std, "deterministic": result.deterministic}
        more = {"returns": result.returns, "lengths": result.lengths, "success_rate": result.success_rate}
        typer.echo(json.dumps({**context, **more, **_statistics(result)}))
        return
    how = "stochastic" if stochastic else "deterministic"
    typer.echo(f"{name}: return {result.mean:.2f} +- {result.std:.2f} over {episodes} {how} episodes")
    if numbers := _statistics(result):
        interval = numbers["interval"]
        bounds = f", 95 % interval of the mean {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
        typer.echo(f"interquartile mean {numbers['iqm']:.2f}{bounds}")


def _statistics(result: Evaluation) -> dict[str, Any]:
    """Interquartile mean and interval, where scipy is installed to work them out."""
    try:
        numbers = result.statistics()
    except SettingsError:
        return {}
    return {"iqm": numbers.iqm, "interval": numbers.interval}


def environment_of(agent: Agent, asked: str | None) -> str:
    """The given id, or the one the agent was trained on.

    Raises:
        SettingsError: neither can be used.
    """
    name = asked or agent.env_name
    if name is None or (asked is None and ":" in name):
        # an id such as "package:Env-v0" imports that package; a file must not choose what is imported here
        raise SettingsError(f"the file names no environment that can be used safely ({name!r}); add --env ID")
    return name
