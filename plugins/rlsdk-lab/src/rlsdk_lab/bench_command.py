"""The command `rlsdk bench SUITE`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from rlsdk.cli import EnvKwargs, ExecutorName, Sinks, Wrappers, complete, steps_option
from rlsdk.errors import SettingsError
from rlsdk.runtime import counted, quietly

if TYPE_CHECKING:
    from rlsdk_lab.benchmark import Bench, BenchResult


def complete_suite(incomplete: str) -> list[str]:
    """Return the names of suites that begin with `incomplete`."""
    from rlsdk_lab.suite import suites

    return complete(incomplete, suites)


def run_bench(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="Name of a suite, or a .toml file that describes one. Without it, the suites are listed.",
            autocompletion=complete_suite,
        ),
    ] = None,
    algos: Annotated[str | None, typer.Option(help="Only these algorithms, separated by commas.")] = None,
    env_kwargs: EnvKwargs = None,
    wrapper: Wrappers = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for every cell; they start at 0.")] = 3,
    jobs: Annotated[
        int | None, typer.Option(help="Number of runs at the same time (default: the number of cores).")
    ] = None,
    budget: Annotated[
        int | None, steps_option("Upper limit of environment steps per run (default: the suite's).")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also run the cells that are marked as too large for one machine.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs (default: bench/SUITE). An existing folder is continued.")
    ] = None,
    executor: ExecutorName = "processes",
    sink: Sinks = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Allow the suite's file to name modules to import and paths to write to.")
    ] = False,
) -> None:
    """Run a suite of algorithms and environments with several seeds and report the results, with confidence intervals.

    Run the same command again to continue where it was stopped. A larger --seeds adds runs.
    """
    from rlsdk_lab import Bench, bench, load_suite
    from rlsdk_lab.many_runs import interrupted, jobs_for
    from rlsdk_lab.report import write_report
    from rlsdk_lab.sweep import seeds_from

    if suite is None:
        _print_suites(as_json=as_json)
        return
    chosen = load_suite(suite).only(tuple(part.strip() for part in (algos or "").split(",") if part.strip()))
    chosen = chosen.changed(env_kwargs, wrapper)
    plan = Bench(
        suite=chosen,
        seeds=seeds_from(0, seeds),
        out=out or Path("bench") / chosen.name,
        jobs=jobs_for(jobs, seeds * len(chosen.cells), 1, executor),
        budget=budget,
        everything=everything,
        executor=executor,
        trust=trust,
        sinks=tuple(sink or ()),
    )
    _require_cells(plan)
    if not quiet:
        typer.echo(
            f"{chosen.name}: {counted(len(plan.cells()), 'cell')}, {counted(seeds, 'seed')} each,"
            f" {counted(plan.jobs, 'run')} at a time",
            err=as_json,
        )
    with interrupted("what ran is saved, the same command continues"), quietly(quiet):
        outcome = bench(plan)
    if as_json:
        typer.echo(json.dumps([attrs.asdict(score) for score in outcome.scores], indent=1, default=str))
    if outcome.scores:
        report = write_report(outcome, shlex.join(["rlsdk", *sys.argv[1:]]))
        typer.echo(f"report: {report} (summary.md and scores.csv are in the same folder)", err=as_json)
    _print_failures(outcome)


def _require_cells(plan: Bench) -> None:
    """Raise SettingsError if there is nothing to run."""
    name = plan.suite.name
    if not plan.suite.cells:
        raise SettingsError(f"no installed algorithm has cells in the suite {name}; install one, or give a .toml file")
    if not plan.cells():
        raise SettingsError(f"every cell of {name} is too large for one machine; add --all, or a --budget")


def _print_failures(outcome: BenchResult) -> None:
    """Print the failed runs, and end the command with exit code 1 if there are any."""
    if not outcome.failures:
        return
    typer.echo(f"{counted(len(outcome.failures), 'run')} failed:", err=True)
    for cell, seed, reason in outcome.failures:
        typer.echo(f"  {cell.name}, seed {seed}: {reason}", err=True)
    raise typer.Exit(1)


def _print_suites(*, as_json: bool) -> None:
    from rlsdk_lab import load_suite, suites

    known = list(map(load_suite, suites()))
    if as_json:
        table = [{"name": each.name, "description": each.description, "cells": len(each.cells)} for each in known]
        typer.echo(json.dumps(table, indent=1))
        return
    for each in known:
        noun = "cell " if len(each.cells) == 1 else "cells"
        typer.echo(f"{each.name:<14}{len(each.cells):>3} {noun}  {each.description}")
