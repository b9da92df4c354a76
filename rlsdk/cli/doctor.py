"""`rlsdk doctor`"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from rlsdk.errors import one_line
from rlsdk.registry import Plugin, plugins
from rlsdk.registry.discovery import SWITCH

if TYPE_CHECKING:
    from rlsdk.registry.trial import Trial


def diagnose() -> None:
    """Check the installation: print versions, and load every plugin in a separate process.

    Exit code 1 if there is a problem.
    """
    from importlib.metadata import PackageNotFoundError, version

    from rlsdk.registry.trial import all_tried

    for package in ("rlsdk", "torch", "gymnasium", "numpy", "safetensors"):
        try:
            typer.echo(f"{package:<14}{version(package)}")
        except PackageNotFoundError:
            typer.echo(f"{package:<14}NOT INSTALLED")
    typer.echo(f"{'cores':<14}{os.cpu_count()}")
    if os.environ.get(SWITCH):
        typer.echo(f"{SWITCH}={os.environ[SWITCH]} hides some plugins")
    found = plugins()
    healthy = [_show(plugin, trial) for plugin, trial in zip(found, all_tried(found), strict=True)]
    if not healthy:
        typer.echo("no plugin is installed; try: pip install rlsdk-tqc")
    if not all(healthy):
        raise typer.Exit(1)


def _show(plugin: Plugin, trial: Trial) -> bool:
    """Print the result of loading one plugin."""
    label = one_line(f"plugin {plugin.qualified_id} {plugin.version}:")
    if trial.problem is not None:
        typer.echo(f"{label} BROKEN: {one_line(trial.problem)}")
        return False
    typer.echo(f"{label} usable" + "".join(f"\n    WARNING: {one_line(effect)}" for effect in trial.effects))
    return not trial.effects
