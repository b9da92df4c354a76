"""The command `rlsdk run ALGO`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from rlsdk.cli.completions import Algorithm
from rlsdk.cli.main import imports_of_command
from rlsdk.cli.options import EnvKwargs, Wrappers, with_request_options
from rlsdk.errors import SettingsError
from rlsdk.registry import AlgorithmSpec, find, load
from rlsdk.runs.request import RunRequest
from rlsdk.runtime.lazy import of_package
from rlsdk.runtime.output import counted, is_quiet, print_line, quietly
from rlsdk.settings import load_settings, merge, parse_assignments
from rlsdk.settings.load import changed_environment

if TYPE_CHECKING:
    from rlsdk.runs.runner import RunResult


@with_request_options
def run_training(
    algorithm: Algorithm,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            help="Data set of recorded episodes to learn from, see record-episodes. Then --env is optional.",
            rich_help_panel="Environment",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting. Can be repeated.", rich_help_panel="Settings"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file, .toml.", rich_help_panel="Settings")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all random numbers (default: random).", rich_help_panel="Settings")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto (the default), cpu, cuda, ...", rich_help_panel="Settings")
    ] = None,
    no_preset: Annotated[
        bool,
        typer.Option("--no-preset", help="Do not use the plugin's tuned settings.", rich_help_panel="Settings"),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds to train in parallel, from --seed on (default 0).", rich_help_panel="Several seeds"
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds at the same time (default: the number of cores).", rich_help_panel="Several seeds"
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.", rich_help_panel="Output")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the result, as JSON.", rich_help_panel="Output")
    ] = False,
    **options: Any,
) -> None:
    """Train an agent. Writes a run directory with settings, metrics, checkpoints, the best and the final agent."""
    find(algorithm)  # first, because the imports below are slow
    env, resume = options["env"], options["resume"]
    _require_one_start(options, config=config is not None, no_preset=no_preset)
    with imports_of_command():
        settings = settings_from(load(algorithm), assignments, dataset, config)

        from rlsdk.runs.directory import SEEDS
        from rlsdk.runs.runner import run
    # Only if the file chooses it: what the user gives needs no trust.
    if config is not None and env is None and "env" not in parse_assignments(assignments or ()):
        _require_own_environment(settings, config, trust=options["trust"])
    options["env"] = _environment(env, settings, env_kwargs, wrapper, resume=resume)
    settings |= {name: value for name, value in (("seed", seed), ("device", device)) if value is not None}

    options["sinks"] = tuple(options["sinks"] or ()) or None
    if options["executor"] is None and options["collectors"] is not None:
        options["executor"] = "processes"
    use_preset = not no_preset and config is None
    request = RunRequest(algorithm=algorithm, settings=settings, use_preset=use_preset, **options)
    with quietly(quiet or as_json):
        if seeds is not None or (resume and request.out is not None and (request.out / SEEDS).exists()):
            rows = of_package("rlsdk-lab", "`rlsdk run` with several seeds").run_seeds(request, seeds, jobs)
        else:
            _require_alone(request, jobs)
            rows = [_report(run(request), algorithm)]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    if any(row["error"] is not None for row in rows):
        raise typer.Exit(1)


def _require_one_start(options: Mapping[str, object], *, config: bool, no_preset: bool) -> None:
    """Refuse --preset together with another source of the settings, and --from or --no-preset together with --resume.

    Raises:
        SettingsError: such options are given together.
    """
    resume = options["resume"]
    others = {"--config": config, "--no-preset": no_preset, "--resume": resume}
    if options["preset"] is not None and (given := [name for name, is_given in others.items() if is_given]):
        raise SettingsError(f"--preset and {given[0]} both choose the settings to start from; give one of them")
    if resume and options["policy_from"] is not None:
        raise SettingsError("--resume continues with the policy of the run; leave out --from, or begin another run")
    if resume and no_preset:
        raise SettingsError("--resume continues with the settings of the run; leave out --no-preset")


def _require_own_environment(settings: Mapping[str, object], config: Path, *, trust: bool) -> None:
    """Check the environment that the file `config` names, if it names one. Raises as `require_own_environment`."""
    from rlsdk.runs.directory import require_own_environment

    if isinstance(env := settings.get("env"), str):
        require_own_environment(env, config, trust=trust)


def _environment(
    env: str | None,
    settings: Mapping[str, object],
    arguments: list[str] | None,
    wrappers: list[str] | None,
    *,
    resume: bool,
) -> str | None:
    """Return the environment with the arguments and wrappers of the command line; None if no environment is given."""
    if not arguments and not wrappers:
        return changed_environment(env, None, None)
    if resume and env is None:
        raise SettingsError(
            "--resume continues in the environment of the run; leave out --env-kwargs and --wrapper, or add the run's --env"
        )
    base = env or settings.get("env")
    if not isinstance(base, str):
        raise SettingsError("--env-kwargs and --wrapper change an environment: add --env ID")
    return changed_environment(base, arguments, wrappers)


def _require_alone(request: RunRequest, jobs: int | None) -> None:
    """Check that a single run has no option for several seeds.

    Raises:
        SettingsError: it has one.
    """
    if jobs is not None:
        raise SettingsError("--jobs belongs to --seeds: how many seeds run at a time")
    if request.executor is not None and request.collectors is None and not request.resume:
        from rlsdk.executors import capacity

        capacity(request.executor)  # an unknown name has an error of its own
        raise SettingsError("--executor belongs to --seeds or --collectors; add one of them, or leave it out")


def _report(result: RunResult, algorithm: str) -> dict[str, object]:
    """Print the result of the run, and return it as a row of `--json`.

    If the run was interrupted, print how to continue it and end with exit code 130.
    """
    folder, score = result.directory.path, result.evaluation
    if result.interrupted:
        print_line(
            f"interrupted at step {result.env_steps:,};"
            f" continue with: rlsdk run {algorithm} --resume --out {shlex.quote(str(folder))}"
            f"{' --trust' if result.needs_trust else ''}",
            sys.stderr if is_quiet() else None,
        )
        raise typer.Exit(130)
    reached = "no evaluation without an environment"
    if score is not None:
        reached = (
            f"return {score.mean:.2f} +- {score.std:.2f} over {counted(len(score.returns), 'deterministic episode')}"
        )
    print_line(f"{result.env_steps:,} {result.unit} in {result.seconds:.0f} s; {reached}")
    print_line(f"files: {folder}/ (final.rlsdk, {'metrics.csv, ' if result.env_steps else ''}config.toml, ...)")
    mean, std = (None, None) if score is None else (score.mean, score.std)
    return {"seed": result.seed, "folder": str(folder), "mean": mean, "std": std, "error": None}


OPTION_OF = {
    "steps": "--steps",
    "n_timesteps": "--steps",
    "total_timesteps": "--steps",
    "n_envs": "--n-envs",
    "eval_every": "--eval-every",
    "eval_freq": "--eval-every",
    "eval_episodes": "--eval-episodes",
    "env_kwargs": "--env-kwargs",
    "env_wrapper": "--wrapper",
    "out": "--out",
    "threads": "--threads",
}
"""Name that users give as a setting, here or in rl-baselines3-zoo -> the option of `rlsdk run`."""


def settings_from(
    spec: AlgorithmSpec, assignments: Iterable[str] | None, dataset: Path | None = None, config: Path | None = None
) -> dict[str, Any]:
    """Return the settings of an algorithm that a command line gives.

    Args:
        spec: the algorithm.
        assignments: the values of --set, each `NAME=VALUE`. They replace those of `config`.
        dataset: the value of --dataset: a data set to learn from.
        config: the value of --config: a settings file.

    Raises:
        SettingsError: an assignment or the file is wrong, a name is an option of the command, or the algorithm does not learn
            from a data set.
        ArtifactError: `dataset` is not a data set.
    """
    stored: dict[str, object] = load_settings(config) if config else {}
    given = parse_assignments(assignments or ())
    _require_settings(spec, {**stored, **given})
    settings = merge(stored, given)
    if dataset is None:
        return settings
    from rlsdk.runs.recorded_run import with_dataset  # imports torch

    return with_dataset(spec, settings, dataset)


def _require_settings(spec: AlgorithmSpec, names: Iterable[str]) -> None:
    """Check that no name is an option of the command instead of a setting.

    Raises:
        SettingsError: a name is an option. The message names it.
    """
    own = {field.name for field in attrs.fields(spec.config_type)}
    for name in names:
        if name in OPTION_OF and name not in own:
            raise SettingsError(f"{name} is an option of the command, not a setting: pass it with {OPTION_OF[name]}")
