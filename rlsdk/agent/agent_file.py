"""The manifest of an agent file: everything about an agent that is not a tensor."""

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
from rlsdk.storage.archive import AGENT_KIND

KIND = AGENT_KIND
SUFFIX = ".rlsdk"
SHOWN_FILES = 5
"""How many files an error names that are there instead of a missing one."""
NOT_RESTORED = ("env", *PLACES)
"""Settings (dotted names) that are not stored and are given again at loading: a file does not choose where to write."""
FREE = re.compile(r".*_kwargs\.")
"""Tables of arguments for a caller's own classes; which of them name places cannot be known."""
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
"""Entries of a manifest and their kinds; any may be missing or null."""
PACKAGES = ("rlsdk", "torch", "numpy", "gymnasium", "safetensors")


def with_suffix(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """A name without the suffix of a serializer gets `.rlsdk`; file objects stay as they are.

    `.zip` stays too: that is what an agent file is.

    Raises:
        ArtifactError: neither the name of a file nor a file object.
    """
    if not isinstance(path, str | PathLike):
        if not hasattr(path, "write") or isinstance(path, TextIOBase):
            raise ArtifactError(
                f"a file is written to a name, a Path or a binary file object (opened with 'wb'), not to {path!r}"
            )
        return path
    return as_agent_file(path)


def as_agent_file(path: str | PathLike[str]) -> Path:
    """`with_suffix` for names."""
    target = Path(path)
    if not target.name:
        raise ArtifactError(f"{str(path)!r} names no file; give a name such as 'agent'")
    known = target.suffix in (SUFFIX, ".zip") or is_offered("serializers", target.suffix)
    return target if known else target.with_name(target.name + SUFFIX)


def existing(path: str | Path | IO[bytes]) -> Path | IO[bytes]:
    """The file as named, or with `.rlsdk` or `.zip` appended when only that exists.

    Raises:
        ArtifactError: neither exists but other files of agents do beside it, or this is neither a name nor a file object.
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
    """The names of files of agents in the folder of a file that is missing: that of the same stem, or else the first few."""
    if not path.parent.is_dir():
        return []
    names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (SUFFIX, ".zip"))
    same = [name for name in names if Path(name).stem in (path.stem, path.name)]
    return same or names[:SHOWN_FILES]


def system_info() -> dict[str, str]:
    """Versions of Python, the platform and the packages an agent depends on."""
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
    """The manifest's own part: which algorithm, which settings, which spaces, made with what."""
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


def require_manifest(document: Mapping[str, object]) -> None:
    """What every reader of a manifest relies on.

    Raises:
        ArtifactError: an entry is of another kind.
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
    """Plain data as JSON has it: numbers that it has no form for, such as infinity, are objects."""
    if isinstance(value, float) and not isfinite(value):
        return {"object": str(value)}
    if isinstance(value, Mapping):
        return {name: _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value


def _is_object(value: object) -> bool:
    """Whether it is a class, a function or an object, which a file cannot hold, or a list of such."""
    if isinstance(value, list):
        return any(_is_object(item) or (isinstance(item, Mapping) and bool(_objects(item))) for item in value)
    return isinstance(value, Mapping) and (set(value) == {"object"} or value.get("kind") == "custom")


def _objects(settings: Mapping[str, object], prefix: str = "") -> list[str]:
    """Dotted names of settings that a file cannot hold."""
    names = []
    for name, value in settings.items():
        if _is_object(value):
            names.append(prefix + name)
        elif isinstance(value, Mapping):
            names += _objects(value, f"{prefix}{name}.")
    return names


def _without(settings: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """The settings without those of these dotted names."""
    left = dict(settings)
    for name in names:
        first, _, rest = name.partition(".")
        if not rest:
            left.pop(first, None)
        elif isinstance(inner := left.get(first), Mapping):
            left[first] = _without(inner, [rest])
    return left


def _places(settings: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Dotted names of free arguments with a text that may name a file or a folder."""
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
    """The settings of a file with `replacements` (dotted names) laid over them.

    Raises:
        ArtifactError: a setting that was an object, or a free argument that may name a file or folder, is not among the
        replacements, or the manifest is malformed.
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
    settings = _without(settings, given.intersection(missing))  # placeholders of objects do not stay in a table
    for name, value in replacements.items():
        settings = merge(settings, nested(name.split("."), _with_digest(settings.get(name), value)))
    return settings


def _with_digest(stored: object, given: object) -> object:
    """The path of a data set that is given again, with the digest it must have: the stored one."""
    if isinstance(stored, Mapping) and set(stored) == {"name", "digest"} and isinstance(given, str | PathLike):
        return {"path": str(given), "digest": stored["digest"]}
    return given


def _dotted(settings: Mapping[str, object], prefix: str = "") -> set[str]:
    """Dotted names of all settings in tables, and of the tables."""
    names = set()
    for key, value in settings.items():
        names |= {f"{prefix}{key}"} | (_dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else set())
    return names


def policy_in(sections: Mapping[str, object]) -> dict[str, object]:
    """The section of the policy's tensors; raises ArtifactError when the file has none."""
    policy = sections.get("policy")
    if not isinstance(policy, dict):
        raise ArtifactError("the file is damaged: it has no section of a policy")
    return policy
