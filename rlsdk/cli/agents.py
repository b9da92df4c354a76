"""The command `rlsdk eval FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli.completions import ExecutorName
from rlsdk.cli.environment_options import EnvKwargs, TrustedFile, Wrappers
from rlsdk.cli.step_counts import MOST_ENVS, MOST_EPISODES, MOST_SEED
from rlsdk.runtime.output import counted
from rlsdk.settings.environment_id import changed_environment


def evaluate_file(
    file: Annotated[Path, typer.Argument(help="Agent file, or a run directory (uses its best agent).")],
    env: Annotated[str | None, typer.Option(help="gymnasium id (default: the environment of the training).")] = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    episodes: Annotated[int, typer.Option(help="Number of episodes.", min=1, max=MOST_EPISODES)] = 20,
    n_envs: Annotated[int, typer.Option(help="Number of environments that are stepped together.", max=MOST_ENVS)] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the environments and of sampled actions.", min=0, max=MOST_SEED)
    ] = 0,
    jobs: Annotated[
        int,
        typer.Option(
            help="Number of parts of the episodes that are played at the same time; each part has different seeds.",
            min=1,
        ),
    ] = 1,
    executor: ExecutorName = "processes",
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions, instead of using the deterministic ones.")
    ] = False,
    trust: TrustedFile = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every episode.")] = False,
) -> None:
    """Evaluate a saved agent: run episodes and report the returns."""
    from rlsdk.experiments.agent_path import find_agent
    from rlsdk.experiments.stored_agent import EvaluationRequest, evaluate_stored

    env = changed_environment(env, env_kwargs, wrapper)
    agent = find_agent(file)
    request = EvaluationRequest(episodes, n_envs, deterministic=not stochastic, seed=seed, parts=jobs)
    played = evaluate_stored(agent, env, request, executor, trust=trust)
    result, numbers = played.result, played.statistics()
    if as_json:
        context = {"env": played.env, "mean": result.mean, "std": result.std, "deterministic": result.deterministic}
        more = {"returns": result.returns, "lengths": result.lengths, "success_rate": result.success_rate}
        robust = {} if numbers is None else {"iqm": numbers.iqm, "interval": numbers.interval}
        typer.echo(json.dumps({**context, **more, **robust}))
        return
    if agent != file:
        typer.echo(f"agent: {agent}")
    how = "stochastic" if stochastic else "deterministic"
    typer.echo(f"{played.env}: return {result.mean:.2f} +- {result.std:.2f} over {counted(episodes, f'{how} episode')}")
    if numbers is not None:
        low_high = numbers.interval
        bounds = f", 95 % interval of the mean {low_high[0]:.2f} to {low_high[1]:.2f}" if low_high else ""
        typer.echo(f"interquartile mean {numbers.iqm:.2f}{bounds}")
