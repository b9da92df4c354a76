"""The command `rlsdk check ID`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from rlsdk.cli import Algorithm
from rlsdk.runtime import print_line
from rlsdk.settings import parse_assignments

if TYPE_CHECKING:
    from rlsdk_testing.kit import CheckResult


def check_plugin(
    algorithm: Algorithm,
    thorough: Annotated[
        bool | None,
        typer.Option(
            "--thorough/--fast",
            help="Thorough: twenty times as many examples, and all observations with all actions. Fast: no clauses that take"
            " long, and those first that find most.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Time limit in seconds. Clauses that would exceed it are not run.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the agents in the check. Can be repeated."),
    ] = None,
    capabilities: Annotated[
        bool,
        typer.Option("--capabilities", help="Measure what the plugin supports, and write the result into its package."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check a plugin against the contracts. Exit code 1 if a clause fails, 3 if some clauses were not run."""
    settings = parse_assignments(assignments or [])
    from rlsdk_testing.request import CheckRequest
    from rlsdk_testing.running import outcomes, summary

    if capabilities:
        _measure(algorithm)
        return
    found = []
    request = CheckRequest(algorithm=algorithm, settings=settings, thorough=thorough is True)
    for outcome in outcomes(request, seconds=seconds, fast=thorough is False):
        found.append(outcome)
        if not as_json:
            _print(outcome)
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in found], indent=1))
    typer.echo(summary(found), err=as_json)
    for status, code in (("failed", 1), ("not run", 3)):
        if any(outcome.status == status for outcome in found):
            raise typer.Exit(code)


def _print(outcome: CheckResult) -> None:
    """Print one clause of the table. For a clause that does not hold, print the cause and the remedy below it."""
    print_line(f"{outcome.status:<16}{outcome.id:<40}{outcome.statement}")
    lines = outcome.detail.splitlines()
    if outcome.status != "failed":
        lines = [f"because: {line}" for line in lines]
    elif outcome.remedy:
        lines.append(f"to mend: {outcome.remedy}")
    for line in lines:
        print_line(f"    {line}")


def _measure(algorithm: str) -> None:
    from rlsdk.registry import find
    from rlsdk_testing import capabilities
    from rlsdk_testing.plugin_trial import require_loads

    require_loads(find(algorithm))
    typer.echo(f"{capabilities.write(find(algorithm), capabilities.measure(algorithm))}")
