"""Files next to a plugin's manifest: presets of tuned hyper-parameters, and measured capabilities.

Reading them runs no plugin code. An example of such a file:

[run]                    # length of the training, number of environments
steps = 20_000
n_envs = 1
source = "where the values come from"

[settings]               # the settings that differ from the defaults
learning_rate = 1e-3
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from rlsdk.errors import SettingsError, one_line, shown, suggest
from rlsdk.registry.discovery import Plugin, find
from rlsdk.registry.manifest import ManifestError, package_folder
from rlsdk.runtime.files import PlainFileError, read_text, read_toml
from rlsdk.settings.load import environment_id


@attrs.frozen(kw_only=True)
class Preset:
    """Settings that were found to work on one environment, and the environment steps that training with them takes."""

    env: str
    steps: int
    settings: dict[str, object]
    n_envs: int | None = None
    """The number of environments; None is the algorithm's default."""
    source: str = ""


def preset_names(algorithm: str) -> tuple[str, ...]:
    """Return the names of the presets that the plugin of `algorithm` contains, sorted. No preset is read.

    A name is an environment id, or a variant of one (see `named_preset`).

    Raises:
        PluginError: no plugin or more than one offers the algorithm, or the plugin cannot be used.
    """
    return tuple(_files(algorithm))


def presets(algorithm: str) -> tuple[Preset, ...]:
    """Return every preset that the plugin of `algorithm` contains, sorted by name.

    Raises:
        PluginError: as in `preset_names`. SettingsError: a preset is damaged.
    """
    return tuple(_read(path, name) for name, path in _files(algorithm).items())


def named_preset(algorithm: str, name: str) -> Preset:
    """Return the preset of `algorithm` called `name`.

    Args:
        algorithm: the id of the algorithm.
        name: an environment id, or a variant of one such as "CartPole-v1-constant-reward".

    Raises:
        PluginError: as in `preset_names`. SettingsError: the algorithm has no such preset, or the preset is damaged.
    """
    files = _files(algorithm)
    if name not in files:
        raise SettingsError(f"{algorithm} has no preset {shown(name, 100)}; {suggest(name, files)}")
    return _read(files[name], name)


def preset(algorithm: str, env: str) -> Preset | None:
    """Return the preset of `algorithm` for the environment id `env`, whose arguments are ignored; None if there is no preset.

    No other preset is read.

    Raises:
        PluginError, SettingsError: as in `presets`.
    """
    name = environment_id(env).name
    path = _files(algorithm).get(name)
    return None if path is None else _read(path, name)


def _files(algorithm: str) -> dict[str, Path]:
    """Return name of a preset -> file, for the plugin of `algorithm`."""
    plugin = find(algorithm)
    plugin.require_usable()
    return plugin.tables("presets")


def _read(path: Path, env: str) -> Preset:
    try:
        data = read_toml(path) or {}
    except PlainFileError as error:
        raise SettingsError(f"the preset for {env}, {one_line(path, 300)}, {error}") from None
    run, settings = data.get("run", {}), data.get("settings", {})
    known = {field.name for field in attrs.fields(Preset)} - {"env", "settings"}
    if set(data) - {"run", "settings"} or not isinstance(run, dict) or not isinstance(settings, dict):
        raise SettingsError(
            f"the preset for {env} must hold two tables, [run] and [settings], not {shown(sorted(data))}"
        )
    if wrong := sorted(set(run) - known):
        raise SettingsError(
            f"the preset for {env} has unknown entries {shown(wrong)} in [run]; accepted: {sorted(known)}"
        )
    for name in ("steps", "n_envs"):
        value = run.get(name, 1 if name == "n_envs" else None)  # n_envs may be left out
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
            raise SettingsError(
                f"the preset for {env} has {name} = {shown(value)} in [run]; give a positive whole number"
            )
    source = run.get("source", "")
    if not isinstance(source, str) or not source.isprintable():
        raise SettingsError(f"the preset for {env} has source = {shown(source)} in [run]; give one line of text")
    return Preset(env=env, settings=settings, **run)


# The measured capabilities of a plugin, read from `capabilities.json` next to its manifest.
#
# `rlsdk check ID --capabilities` writes that file.

NAME = "capabilities.json"


def capabilities_file(plugin: Plugin) -> Path:
    """Return the path of the file beside the plugin's manifest, whether it exists or not. The package is not imported.

    Raises:
        ManifestError: the package cannot be found.
    """
    return package_folder(plugin.module) / NAME


def capabilities(plugin: Plugin) -> dict[str, object] | None:
    """Return the measured capabilities of a plugin: name -> bool, text or list of texts.

    None if nothing was measured or the file is damaged.
    """
    try:
        found = json.loads(read_text(capabilities_file(plugin)) or "")
    except (ValueError, RecursionError, ManifestError):
        return None
    return found if isinstance(found, dict) and all(map(_is_fact, found.values())) else None


def _is_fact(value: object) -> bool:
    words = value if isinstance(value, list) else [value]
    return isinstance(value, bool) or all(isinstance(word, str) and word.isprintable() for word in words)
