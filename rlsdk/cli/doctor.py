"""`rlsdk doctor`"""

from __future__ import annotations

import os
import warnings

import typer

from rlsdk.errors import PluginError
from rlsdk.registry import Plugin, extension, load, plugins
from rlsdk.registry.discovery import HOOKS, SWITCH
from rlsdk.registry.guard import PluginSideEffect


def diagnose() -> None:
    """Check the installation: versions, and every plugin by loading it. Exit code 1 if something is wrong."""
    from importlib.metadata import PackageNotFoundError, version

    for package in ("rlsdk", "torch", "gymnasium", "numpy", "safetensors"):
        try:
            typer.echo(f"{package:<14}{version(package)}")
        except PackageNotFoundError:
            typer.echo(f"{package:<14}NOT INSTALLED")
    typer.echo(f"{'cores':<14}{os.cpu_count()}")
    if os.environ.get(SWITCH):
        typer.echo(f"{SWITCH}={os.environ[SWITCH]} hides some plugins")
    healthy = [_examine(plugin) for plugin in plugins()]
    if not healthy:
        typer.echo("no plugin is installed; try: pip install rlsdk-tqc")
    if not all(healthy):
        raise typer.Exit(1)


def _examine(plugin: Plugin) -> bool:
    """Load one plugin and say how it went."""
    label = f"plugin {plugin.qualified_id} {plugin.version}:"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if plugin.manifest is None or plugin.manifest.family is not None:
                load(plugin.qualified_id)
            for kind in HOOKS:
                for name in getattr(plugin.manifest, kind, ()):
                    extension(kind, name)
        except PluginError as error:
            typer.echo(f"{label} BROKEN: {error}")
            return False
    effects = [str(w.message) for w in caught if issubclass(w.category, PluginSideEffect)]
    typer.echo(f"{label} usable" + "".join(f"\n    WARNING: {effect}" for effect in effects))
    return not effects
