"""The command `rlsdk tune ALGO`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from rlsdk.cli import (
    MOST_ENVS,
    MOST_EPISODES,
    MOST_SEED,
    Algorithm,
    Environment,
    EnvKwargs,
    ExecutorName,
    Sinks,
    Wrappers,
    changed_environment,
    settings_from,
    steps_option,
)
from rlsdk.errors import SettingsError
from rlsdk.registry import find, load
from rlsdk.runtime import counted, print_line, quietly

if TYPE_CHECKING:
    from rlsdk_lab.tuning import Best

DEFAULT_PRUNER = "median"
MOST_TRIALS = 10**6


def tune_algorithm(
    algorithm: Algorithm,
    steps: Annotated[int, steps_option("Environment steps of every trial.")],
    env: Environment = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    trials: Annotated[
        int, typer.Option(help="Total number of trials, including those of earlier calls.", min=1, max=MOST_TRIALS)
    ] = 50,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting that is fixed, not searched. Can be repeated."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Data set of recorded episodes to learn from, see record-episodes. Then --env is optional."),
    ] = None,
    n_envs: Annotated[
        int | None, typer.Option(help="Number of environments that are stepped together.", min=1, max=MOST_ENVS)
    ] = None,
    eval_episodes: Annotated[int, typer.Option(help="Episodes per evaluation.", min=1, max=MOST_EPISODES)] = 10,
    jobs: Annotated[
        int | None, typer.Option(help="Number of trials at the same time (default: the number of cores).")
    ] = None,
    executor: ExecutorName = "processes",
    seed: Annotated[int, typer.Option(help="Seed of the search.", min=0, max=MOST_SEED)] = 0,
    pruner: Annotated[
        str | None,
        typer.Option(
            help="Which trials stop early: median (the default) stops those worse than the median of the others; halving"
            " continues one of three, at 1, 3 and 9 tenths of the steps."
        ),
    ] = None,
    no_prune: Annotated[bool, typer.Option("--no-prune", help="Train every trial for all its steps.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study (default: tune/ALGO-ENV). An existing study is continued.")
    ] = None,
    sink: Sinks = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the result, as JSON.")] = False,
) -> None:
    """Search for hyper-parameters (extra `tune`), and write the best as a settings file that `rlsdk run --config` takes.

    The search varies the settings that declare a range, see `rlsdk.settings.fields`. Run the same command again to continue
    where it was stopped. A larger --trials adds trials.
    """
    find(algorithm)  # first, because the imports below are slow
    from rlsdk.runs import folder_name
    from rlsdk_lab import Tuning, tune
    from rlsdk_lab.many_runs import interrupted, jobs_for

    settings = settings_from(load(algorithm), assignments, dataset)
    env = changed_environment(_environment(algorithm, settings, env), env_kwargs, wrapper)
    if no_prune and pruner is not None:
        raise SettingsError("--no-prune gives no trial up, so --pruner has no meaning; leave one of them out")
    plan = Tuning(
        algorithm=algorithm,
        env=env,
        steps=steps,
        trials=trials,
        settings=settings,
        n_envs=n_envs,
        episodes=eval_episodes,
        jobs=jobs_for(jobs, trials, 1, executor),
        executor=executor,
        seed=seed,
        prune=not no_prune,
        pruner=pruner or DEFAULT_PRUNER,
        out=out or Path("tune") / f"{algorithm}-{folder_name(env)}",
        sinks=tuple(sink or ()),
    )
    if "env" in plan.settings or "seed" in plan.settings:
        raise SettingsError("env and seed cannot be given with --set; use the options --env and --seed")
    with quietly(quiet or as_json):
        print_line(f"{algorithm} on {env}: {', '.join(found.name for found in plan.space())}; {plan.jobs} at a time")
        with interrupted("finished trials are saved, the same command continues"):
            best = tune(plan)
        command = plan.command(best.file)
        _report(best, command)
    if as_json:
        typer.echo(json.dumps({**attrs.asdict(best), "file": str(best.file), "command": command}, indent=1))


def _environment(algorithm: str, settings: Mapping[str, object], env: str | None) -> str:
    """Return the environment: `env`, or that of the data set.

    Raises:
        SettingsError: there is no environment.
    """
    from rlsdk.runs import environment_of

    env = env or environment_of(load(algorithm), settings)
    if env is None:
        raise SettingsError("a search compares returns, so it needs an environment: add --env ID")
    return env


def _report(best: Best, command: str) -> None:
    others = f"{best.given_up} pruned, {best.failed} failed"
    print_line(f"best of {counted(best.trials, 'trial')} ({others}): return {best.score:.2f}")
    for name, value in best.values.items():
        print_line(f"  {name} = {value:.6g}")
    print_line(f"settings: {best.file}; train with: {command}")
