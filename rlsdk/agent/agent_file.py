"""The manifest of an agent file, which describes the agent: algorithm, settings, spaces and versions."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from io import TextIOBase
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import IO, Any

from rlsdk import spaces
from rlsdk.errors import ArtifactError
from rlsdk.interfaces import BuildContext
from rlsdk.registry import AlgorithmSpec, find, plugin_of
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.places import PLACES, may_be_place
from rlsdk.settings import merge, unstructure
from rlsdk.settings.load import nested
from rlsdk.storage import factory
from rlsdk.storage.archive import AGENT_KIND

KIND = AGENT_KIND
SUFFIX = ".rlsdk"
SHOWN_FILES = 5
"""The largest number of existing files that the error about a missing file names."""
NOT_RESTORED = ("env", *PLACES)
"""Settings (dotted names) that are not stored and must be passed again at loading, so that no file chooses where to write."""
FREE = re.compile(r".*_kwargs\.")
"""Settings with arguments for classes of the user. It is unknown which of these arguments name files or folders."""
MANIFEST: dict[str, type] = {
    "algorithm": str,
    "plugin": dict,
    "environment": str,
    "num_envs": int,
    "num_timesteps": int,
    "action_masks": bool,
    "seed": int,
    "config": dict,
    "not_stored": list,
    "system": dict,
    "observation_space": dict,
    "action_space": dict,
}
"""Entry of a manifest -> its type; any entry may be missing or null."""
PACKAGES = ("rlsdk", "torch", "numpy", "gymnasium", "safetensors")


def with_suffix(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """The path of a file to write: `.rlsdk` is appended to a name unless it has that suffix, `.zip`, or a plugin's suffix.

    File objects are returned unchanged.

    Raises:
        ArtifactError: `path` is neither the name of a file nor a binary file object.
    """
    if not isinstance(path, str | PathLike):
        if not hasattr(path, "write") or isinstance(path, TextIOBase):
            raise ArtifactError(
                f"a file is written to a name, a Path or a binary file object (opened with 'wb'), not to {path!r}"
            )
        return path
    return as_agent_file(path)


def as_agent_file(path: str | PathLike[str]) -> Path:
    """The path of an agent file to write: `.rlsdk` is appended to a name unless it has that suffix, `.zip`, or a plugin's.

    Raises:
        ArtifactError: `path` names no file.
    """
    target = Path(path)
    if not target.name:
        raise ArtifactError(f"{str(path)!r} names no file; give a name such as 'agent'")
    known = target.suffix in (SUFFIX, ".zip") or is_offered("serializers", target.suffix)
    return target if known else target.with_name(target.name + SUFFIX)


def existing(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """The path of a file to read: `path` itself, or with `.rlsdk` or `.zip` appended if only that file exists.

    Raises:
        ArtifactError: no such file exists but its folder has other files of agents, or `path` is neither a name nor a binary
        file object.
    """
    if not isinstance(path, str | PathLike):
        if not hasattr(path, "read") or isinstance(path, TextIOBase):
            raise ArtifactError(
                "an agent is loaded from a file name, a Path or a binary file object (opened with 'rb'), not from"
                f" {path!r}"
            )
        return path
    plain, suffixed = Path(path), with_suffix(path)
    if plain.is_file() or not isinstance(suffixed, Path):
        return plain
    zipped = plain.with_name(plain.name + ".zip")
    if not suffixed.exists() and zipped.is_file():
        return zipped
    if not suffixed.exists() and (beside := _beside(plain)):
        raise ArtifactError(f"there is no file {suffixed}; this folder has {', '.join(beside)}")
    return suffixed


def _beside(path: Path) -> list[str]:
    """The names of agent files in the folder of a missing file: those with the same stem, or else the first `SHOWN_FILES`."""
    if not path.parent.is_dir():
        return []
    names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (SUFFIX, ".zip"))
    same = [name for name in names if Path(name).stem in (path.stem, path.name)]
    return same or names[:SHOWN_FILES]


def system_info() -> dict[str, str]:
    """Name -> version of Python, the platform and the packages that agents depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def describe_agent(
    spec: AlgorithmSpec, config: object, context: BuildContext, environment: str | None
) -> dict[str, object]:
    """The entries of the manifest that describe the agent: its algorithm, plugin, settings, spaces and package versions."""
    plugin = plugin_of(spec) or find(spec.id)
    settings = _without(_storable(unstructure(config)), NOT_RESTORED)
    return {
        "kind": KIND,
        "algorithm": spec.id,
        "plugin": {"distribution": plugin.distribution, "version": plugin.version},
        "environment": environment,
        "num_envs": context.num_envs,
        "config": settings,
        "not_stored": sorted(_objects(settings)),
        "observation_space": spaces.to_json(context.observation_space),
        "action_space": spaces.to_json(context.action_space),
        "system": system_info(),
    }


def inspect_file(path: str | Path | IO[bytes]) -> dict[str, object]:
    """Read the manifest of an agent file, with the dtype and shape of each tensor. Reads no tensor, and needs no plugin.

    Raises:
        ArtifactError: the file is missing, damaged, or not of an agent.
    """
    document = factory.inspect(existing(path), kind=KIND)
    require_manifest(document)
    return document


def require_manifest(document: Mapping[str, object]) -> None:
    """Check the types of the entries of a manifest.

    Raises:
        ArtifactError: an entry has another type.
    """
    for name, kind in MANIFEST.items():
        value = document.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
            raise ArtifactError(f"the file is damaged: its manifest has {name} = {repr(value)[:80]}")
    for name in ("plugin", "system"):
        entries = document.get(name)
        given = entries.items() if isinstance(entries, dict) else ()
        if wrong := [key for key, value in given if not isinstance(value, str | None)]:
            raise ArtifactError(f"the file is damaged: {name} in its manifest has no text for {wrong[0][:80]!r}")


def _storable(value: Any) -> Any:
    """The settings with numbers that JSON cannot represent, such as infinity, replaced by placeholders of objects."""
    if isinstance(value, float) and not isfinite(value):
        return {"object": str(value)}
    if isinstance(value, Mapping):
        return {name: _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value


def _is_object(value: object) -> bool:
    """Whether a setting is a class, function or object, which a file cannot store, or a list with one."""
    if isinstance(value, list):
        return any(_is_object(item) or (isinstance(item, Mapping) and bool(_objects(item))) for item in value)
    return isinstance(value, Mapping) and (set(value) == {"object"} or value.get("kind") == "custom")


def _objects(settings: Mapping[str, object], prefix: str = "") -> list[str]:
    """The dotted names of settings that a file cannot store."""
    names = []
    for name, value in settings.items():
        if _is_object(value):
            names.append(prefix + name)
        elif isinstance(value, Mapping):
            names += _objects(value, f"{prefix}{name}.")
    return names


def _without(settings: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """The settings without those whose dotted names are given."""
    left = dict(settings)
    for name in names:
        first, _, rest = name.partition(".")
        if not rest:
            left.pop(first, None)
        elif isinstance(inner := left.get(first), Mapping):
            left[first] = _without(inner, [rest])
    return left


def _places(settings: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of the arguments for classes of the user whose text may name a file or folder."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _places(value, f"{name}.")
        elif FREE.match(name) and any(may_be_place(key, text) for text in _texts(value)):
            yield name


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])


def restored_config(document: Mapping[str, object], replacements: Mapping[str, object]) -> dict[str, object]:
    """The settings of a file, where `replacements` (dotted name -> value) replace the stored values.

    Raises:
        ArtifactError: the manifest is malformed, or `replacements` lack a setting that was an object or an argument that may
        name a file or folder.
    """
    config, missing = document.get("config"), document.get("not_stored")
    if not isinstance(config, dict) or not isinstance(missing, list) or not all(isinstance(n, str) for n in missing):
        raise ArtifactError("the file is damaged: its manifest holds no settings")
    settings, given = _without(config, NOT_RESTORED), _dotted(replacements)
    whole = [f"{name}." for name in given if not any(other.startswith(f"{name}.") for other in given)]
    absent = [name for name in missing if name not in {*given, *NOT_RESTORED} and not name.startswith(tuple(whole))]
    if absent:
        example = f"custom_objects={{{absent[0]!r}: ...}}"
        raise ArtifactError(
            f"the agent was made with objects that files do not store; give {absent} again: load(..., {example})"
        )
    if places := sorted(set(_places(settings)) - given):
        raise ArtifactError(
            f"the file's settings {places} may name files or folders, which no file may choose; give them again:"
            f" load(..., custom_objects={{{places[0]!r}: ...}})"
        )
    settings = _without(settings, given.intersection(missing))  # remove the placeholders of objects
    for name, value in replacements.items():
        settings = merge(settings, nested(name.split("."), _with_digest(settings.get(name), value)))
    return settings


def _with_digest(stored: object, given: object) -> object:
    """A replacement that is the path of a data set, with the stored digest that the file must have; others are unchanged."""
    if isinstance(stored, Mapping) and set(stored) == {"name", "digest"} and isinstance(given, str | PathLike):
        return {"path": str(given), "digest": stored["digest"]}
    return given


def _dotted(settings: Mapping[str, object], prefix: str = "") -> set[str]:
    """The dotted names of all settings, of tables and of the settings in them."""
    names = set()
    for key, value in settings.items():
        names |= {f"{prefix}{key}"} | (_dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else set())
    return names


def policy_in(sections: Mapping[str, object]) -> dict[str, object]:
    """The section with the policy's tensors; raises ArtifactError if the file has none."""
    policy = sections.get("policy")
    if not isinstance(policy, dict):
        raise ArtifactError("the file is damaged: it has no section of a policy")
    return policy
