"""TOML files in a folder of a plugin's package, beside its manifest. Finding and reading them runs no plugin code."""

from __future__ import annotations

from pathlib import Path

from rlsdk.registry.discovery import Plugin
from rlsdk.registry.manifest import ManifestError, package_folder


def packaged_tables(plugin: Plugin, folder: str) -> dict[str, Path]:
    """Name -> file, sorted by name; a file in a folder of its own is named `folder/name`. {} where there are none."""
    try:
        place = package_folder(plugin.module) / folder
        found = {path.relative_to(place).with_suffix("").as_posix(): path for path in place.rglob("*.toml")}
    except (ManifestError, OSError):  # registered from a script or a notebook
        return {}
    return {name: found[name] for name in sorted(found) if name.isprintable()}
