"""The manifest of an agent file: everything about an agent that is not a tensor."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import IO, Any

from rlsdk import spaces
from rlsdk.errors import ArtifactError
from rlsdk.parts import Facts
from rlsdk.registry import AlgorithmSpec, extensions, find, plugin_of
from rlsdk.settings import merge, unstructure
from rlsdk.settings.load import nested

KIND = "rlsdk-agent"
SUFFIX = ".rlsdk"
NOT_RESTORED = ("env", "tensorboard_log")
"""Settings that are given again at loading: a file does not say where to write."""
PACKAGES = ("rlsdk", "torch", "numpy", "gymnasium", "safetensors")


def with_suffix(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """A name without a suffix some serializer knows gets `.rlsdk`; file objects stay as they are.

    `.zip` stays too: that is what an agent file is.

    Raises:
        ArtifactError: neither a name nor a file object.
    """
    if not isinstance(path, str | PathLike):
        if not hasattr(path, "write"):
            raise ArtifactError(f"a file is written to a name, a Path or a binary file object, not to {path!r}")
        return path
    target = Path(path)
    known = (SUFFIX, ".zip", *extensions("serializers"))
    return target if target.suffix in known else target.with_name(target.name + SUFFIX)


def existing(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """The file as named, or with the suffix appended when only that exists."""
    if not isinstance(path, str | PathLike):
        if not hasattr(path, "read"):
            raise ArtifactError(
                f"an agent is loaded from a file name, a Path or a binary file object, not from {path!r}"
            )
        return path
    plain, suffixed = Path(path), with_suffix(path)
    return plain if plain.is_file() or not isinstance(suffixed, Path) else suffixed


def system_info() -> dict[str, str]:
    """Versions of Python, the platform and the packages an agent depends on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def describe_agent(spec: AlgorithmSpec, config: Any, facts: Facts, environment: str | None) -> dict[str, Any]:
    """The manifest's own part: which algorithm, which settings, which spaces, made with what."""
    plugin = plugin_of(spec) or find(spec.id)
    settings = unstructure(config)
    return {
        "kind": KIND,
        "algorithm": spec.id,
        "plugin": {"distribution": plugin.distribution, "version": plugin.version},
        "environment": environment,
        "num_envs": facts.num_envs,
        "config": {name: value for name, value in settings.items() if name != "env"},
        "not_stored": sorted(_objects(settings)),
        "observation_space": spaces.to_json(facts.observation_space),
        "action_space": spaces.to_json(facts.action_space),
        "system": system_info(),
    }


def _objects(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of settings that are classes or functions, which a file cannot hold."""
    names = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            is_object = set(value) == {"object"} or value.get("kind") == "custom"
            names += [prefix + name] if is_object else _objects(value, f"{prefix}{name}.")
    return names


def restored_config(document: Mapping[str, Any], replacements: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file with `replacements` (dotted names) laid over them.

    Raises:
        ArtifactError: a setting that was an object is not among the replacements, or the manifest is malformed.
    """
    config, missing = document.get("config"), document.get("not_stored")
    if not isinstance(config, dict) or not isinstance(missing, list) or not all(isinstance(n, str) for n in missing):
        raise ArtifactError("the file is damaged: its manifest holds no settings")
    top_level = {name.partition(".")[0] for name in replacements}
    absent = [name for name in missing if name not in replacements and name.partition(".")[0] not in top_level]
    if absent:
        example = f"custom_objects={{{absent[0]!r}: ...}}"
        raise ArtifactError(
            f"the agent was made with objects that files do not store; give {absent} again: load(..., {example})"
        )
    settings = {name: value for name, value in config.items() if name not in NOT_RESTORED}
    for name, value in replacements.items():
        settings = merge(settings, nested(name.split("."), value))
    return settings
