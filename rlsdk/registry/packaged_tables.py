"""TOML files in a folder of a plugin's package, next to its manifest. Finding and reading them runs no plugin code."""

from __future__ import annotations

from pathlib import Path

from rlsdk.registry.discovery import Plugin
from rlsdk.registry.manifest import ManifestError, package_folder


def packaged_tables(plugin: Plugin, folder: str) -> dict[str, Path]:
    """Return name -> file for the TOML files in `folder` of a plugin's package, sorted by name; {} if there are none.

    The name is the path in `folder` without the suffix, such as `subfolder/name`.
    """
    try:
        place = package_folder(plugin.module) / folder
        found = {path.relative_to(place).with_suffix("").as_posix(): path for path in place.rglob("*.toml")}
    except (ManifestError, OSError):  # the plugin is registered from a script or a notebook
        return {}
    return {name: found[name] for name in sorted(found) if name.isprintable()}
