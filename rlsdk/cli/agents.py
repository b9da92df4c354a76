"""The commands `rlsdk eval`, `rlsdk inspect` and `rlsdk config`, which read agents, runs and settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli.completions import Algorithm, ExecutorName, complete_environment, complete_preset
from rlsdk.cli.main import imports_of_command
from rlsdk.cli.options import MOST_ENVS, MOST_EPISODES, MOST_SEED, EnvKwargs, TrustedFile, Wrappers
from rlsdk.errors import SettingsError, one_line
from rlsdk.registry.loading import extension, extensions, is_offered, load
from rlsdk.runs.request import chosen_preset, is_preset_file
from rlsdk.runtime.lazy import is_installed, of_package
from rlsdk.runtime.output import counted, wrapped
from rlsdk.runtime.packages import pip_install
from rlsdk.settings import commented_toml, merge, parse_assignments, structure, unstructure
from rlsdk.settings.load import changed_environment


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
    with imports_of_command():
        from rlsdk.runs.directory import find_agent
        from rlsdk.runs.stored_evaluation import EvaluationRequest, evaluate_stored

    env = changed_environment(env, env_kwargs, wrapper)
    agent = find_agent(file)
    request = EvaluationRequest(episodes, n_envs, deterministic=not stochastic, seed=seed, parts=jobs)
    name, result = evaluate_stored(agent, env, request, executor, trust=trust)
    # intervals need scipy, which rlsdk-lab brings
    numbers = of_package("rlsdk-lab", "intervals").summarize(result.returns) if is_installed("rlsdk-lab") else None
    if as_json:
        context = {"env": name, "mean": result.mean, "std": result.std, "deterministic": result.deterministic}
        more = {"returns": result.returns, "lengths": result.lengths, "success_rate": result.success_rate}
        robust = {} if numbers is None else {"iqm": numbers.iqm, "interval": numbers.interval}
        typer.echo(json.dumps({**context, **more, **robust}))
        return
    if agent != file:
        typer.echo(f"agent: {agent}")
    how = "stochastic" if stochastic else "deterministic"
    typer.echo(f"{name}: return {result.mean:.2f} +- {result.std:.2f} over {counted(episodes, f'{how} episode')}")
    if numbers is not None:
        low_high = numbers.interval
        bounds = f", 95 % interval of the mean {low_high[0]:.2f} to {low_high[1]:.2f}" if low_high else ""
        typer.echo(f"interquartile mean {numbers.iqm:.2f}{bounds}")


def inspect_file(
    file: Annotated[Path, typer.Argument(help="Agent file, run directory (uses its best agent), or data set.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest as JSON.")] = False,
) -> None:
    """Show the contents of an agent file or of a data set. Runs no code from it and needs no plugin."""
    if (other := _of_package(file)) is not None:
        typer.echo(_inspector(other)(other, as_json))
        return
    with imports_of_command():
        from rlsdk.agent import inspect_file as manifest_of
        from rlsdk.runs.directory import find_agent
        from rlsdk.storage.archive import shapes_in, table_in

    document = manifest_of(find_agent(file))
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    plugin, system = table_in(document, "plugin"), table_in(document, "system")
    rows = {
        "algorithm": f"{document.get('algorithm')} ({plugin.get('distribution')} {plugin.get('version')})",
        "environment": f"{document.get('environment')}, {document.get('num_timesteps')} steps, seed {document.get('seed')}",
        "observation": _short(document.get("observation_space")),
        "action": _short(document.get("action_space")),
        "made with": ", ".join(f"{name} {value}" for name, value in system.items()),
    }
    not_stored = document.get("not_stored")
    if isinstance(not_stored, list) and not_stored:
        names = ", ".join(map(str, not_stored))
        rows["not stored"] = f"{names} (give them to load through custom_objects)"
    for name, text in rows.items():
        typer.echo(wrapped(f"{name + ':':<14}{one_line(text)}", 14))
    for section, shapes in shapes_in(document).items():
        count = sum(map(math.prod, shapes.values()))
        typer.echo(f"section:      {one_line(section)}, {len(shapes)} tensors, {count:,} numbers")
    typer.echo(wrapped(f"settings:     {json.dumps(document.get('config'))}", 14))


PACKAGES: Mapping[str, str] = {".safetensors": "rlsdk-datasets"}
"""Suffix of files that another package of this project shows -> that package."""


def _of_package(file: Path) -> Path | None:
    """Return the file at `file`, which may lack its suffix, if it is of a kind that packages show; otherwise None."""
    for suffix in {*extensions("inspectors"), *PACKAGES}:
        if file.suffix == suffix:
            return file
        if not file.exists() and (whole := Path(f"{file}{suffix}")).is_file():
            return whole
    return None


def _inspector(file: Path) -> Callable[[Path, bool], str]:
    """Return the function that describes a file.

    Raises:
        SettingsError: the package that has it is not installed.
    """
    if not is_offered("inspectors", file.suffix):
        package = PACKAGES[file.suffix]
        raise SettingsError(f"{file} is a file of {package}, which is not installed: {pip_install(package)}")
    # first, because the side effects of torch and gymnasium are not those of the plugin, which needs them, too
    import rlsdk.agent.agent  # noqa: F401

    return extension("inspectors", file.suffix)


def _short(space: object) -> str:
    text = json.dumps(space)
    return text if len(text) <= 100 else text[:97] + "..."


def show_config(
    algorithm: Algorithm,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting. Can be repeated.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from tuned settings: an environment id, another name that `rlsdk info` lists, or a settings file of"
            " rl-baselines3-zoo, .yml.",
            autocompletion=complete_preset,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment id that selects a table in a settings file of rl-baselines3-zoo.",
            autocompletion=complete_environment,
        ),
    ] = None,
) -> None:
    """Print a settings file with comments: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    if env is not None and not is_preset_file(preset or ""):
        raise SettingsError("--env chooses a table of a file: give --preset FILE.yml, or leave it out")
    tuned = chosen_preset(preset, spec, env).settings if preset else {}
    settings = merge({"policy": spec.policies[0], **tuned}, parse_assignments(assignments or []))
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)
