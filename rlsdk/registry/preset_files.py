"""Tuned hyper-parameters a plugin ships: `presets/<environment id>.toml` beside its manifest. Reading them runs no plugin code.

[run]                    # how long and wide
steps = 20_000
n_envs = 1
source = "where the values come from"

[settings]               # what differs from the defaults
learning_rate = 1e-3
"""

from __future__ import annotations

from typing import Any

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry.discovery import find
from rlsdk.registry.manifest import ManifestError, package_folder
from rlsdk.settings.load import load_settings


@attrs.frozen(kw_only=True)
class Preset:
    """Settings that are known to work on one environment, and how long they take."""

    env: str
    steps: int
    settings: dict[str, Any]
    n_envs: int | None = None
    """None: as many as the algorithm takes where nobody says."""
    source: str = ""


def presets(algorithm: str) -> tuple[Preset, ...]:
    """Every preset the plugin of `algorithm` ships, by environment id.

    Raises:
        PluginError: nobody, or more than one plugin, offers the algorithm. SettingsError: a preset is damaged.
    """
    try:
        folder = package_folder(find(algorithm).module) / "presets"
    except ManifestError:  # registered from a script or a notebook
        return ()
    names = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))
    return tuple(_read(load_settings(folder / f"{name}.toml"), name) for name in names)


def preset(algorithm: str, env: str) -> Preset | None:
    """The preset of `algorithm` for exactly this environment id, None where there is none.

    Raises:
        PluginError, SettingsError: as `presets`.
    """
    return next((known for known in presets(algorithm) if known.env == env), None)


def _read(data: dict[str, Any], env: str) -> Preset:
    run, settings = data.get("run", {}), data.get("settings", {})
    known = {field.name for field in attrs.fields(Preset)} - {"env", "settings"}
    if set(data) - {"run", "settings"} or not isinstance(run, dict) or not isinstance(settings, dict):
        raise SettingsError(f"the preset for {env} must hold two tables, [run] and [settings], not {sorted(data)}")
    if wrong := sorted(set(run) - known):
        raise SettingsError(f"the preset for {env} has unknown entries {wrong} in [run]; accepted: {sorted(known)}")
    for name in ("steps", "n_envs"):
        value = run.get(name, 1 if name == "n_envs" else None)  # n_envs may be left out
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SettingsError(f"the preset for {env} has {name} = {value!r} in [run]; give a positive whole number")
    return Preset(env=env, settings=settings, **run)
