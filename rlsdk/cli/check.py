"""`rlsdk check ID`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rlsdk.errors import SettingsError


def check_plugin(
    algorithm: Annotated[str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.")],
    thorough: Annotated[bool, typer.Option("--thorough", help="Try twenty times as many examples.")] = False,
    capabilities: Annotated[
        bool, typer.Option("--capabilities", help="Try what the plugin can do, and keep the result in its package.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run the contract checks of the interfaces against a plugin. Exit code 1 if one fails."""
    try:
        import hypothesis  # noqa: F401  # the clauses need it

        from rlsdk.testing import run_checks
    except ImportError as error:
        raise SettingsError(f"the checks need more packages: pip install rlsdk[testing] ({error})") from None
    from rlsdk.registry import find
    from rlsdk.registry.trial import require_loads

    require_loads(find(algorithm))
    if capabilities:
        from rlsdk.testing import capabilities as tried

        typer.echo(f"{tried.write(find(algorithm), tried.measure(algorithm))}")
        return
    outcomes = run_checks(algorithm, thorough=thorough)
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes], indent=1))
    else:
        for outcome in outcomes:
            typer.echo(f"{outcome.status:<16}{outcome.id:<40}{outcome.statement}")
            if outcome.detail and outcome.status == "failed":
                typer.echo("    " + outcome.detail.replace("\n", "\n    "))
    failed, absent = (sum(outcome.status == name for outcome in outcomes) for name in ("failed", "not applicable"))
    applied = len(outcomes) - absent
    others = f"; {absent} of {len(outcomes)} do not apply" if absent else ""
    typer.echo(f"{applied - failed} of {applied} clauses hold{others}", err=as_json)
    if failed:
        raise typer.Exit(1)
