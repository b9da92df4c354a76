"""Entries that plugins add to the suites of `rlsdk bench`: files `suites/<name of the suite>.toml` next to the manifest."""

from __future__ import annotations

from pathlib import Path

from rlsdk.registry.discovery import algorithms


def suite_files() -> dict[str, dict[str, Path]]:
    """Return name of a suite -> id of an algorithm -> file, both sorted.

    Plugins that cannot be used, or that have the same id as another one, are left out.
    """
    found: dict[str, dict[str, Path]] = {}
    everything = algorithms()
    ids = [plugin.id for plugin in everything if plugin.problem is None]
    for plugin in everything:
        if plugin.problem is None and ids.count(plugin.id) == 1:
            for name, path in plugin.tables("suites").items():
                found.setdefault(name, {})[plugin.id] = path
    return {name: found[name] for name in sorted(found)}
