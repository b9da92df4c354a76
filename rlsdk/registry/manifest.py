"""What a plugin says about itself: `rlsdk.toml`, beside its code. Reading it runs none of that code."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from rlsdk.registry.plain_files import PlainFileError, read_toml
from rlsdk.registry.spec import FAMILIES, Family
from rlsdk.runtime.output import one_line, shown

EXTENSIONS = ("sinks", "environments", "serializers", "executors")
SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
RESERVED = {
    "serializers": (".rlsdk",),
    "environments": ("rlsdk",),
    "executors": ("in-process", "processes", "auto", "sync", "async", "native"),
    "sinks": ("console", "csv", "jsonl", "tensorboard"),
}
"""Names of the SDK's own, which no plugin may take over."""
_NAMES = {
    "id": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), "letters, digits, '-', '_' and '.'"),
    "serializers": (re.compile(r"\.[A-Za-z0-9_-]{1,30}"), "a file suffix such as '.npz'"),
    **dict.fromkeys(
        ("sinks", "environments", "executors", "policies", "traits"),
        (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), "letters, digits, '-', '_' and '.'"),
    ),
}
MOST_TEXT, MOST_ITEMS = 1000, 100


class ManifestError(Exception):
    """Why a manifest cannot be used; `discovery` turns it into the plugin's `problem`."""


@attrs.frozen(kw_only=True)
class Manifest:
    """The static facts of one plugin: an algorithm, or extensions, or both."""

    id: str
    title: str
    summary: str
    sdk: str
    """Range of SDK versions, as in `>=0.1,<0.2`."""
    family: Family | None = None
    """None for a plugin that brings no algorithm."""
    actions: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    """Capabilities: of `rlsdk.testing`'s list, which `rlsdk check` tries, or of your own, which begin with `x-`."""
    paper: str = ""
    sinks: tuple[str, ...] = ()
    """Names of the metric sinks its hook `metric_sinks` gives."""
    environments: tuple[str, ...] = ()
    """Namespaces of the environment ids its hook `environment_makers` can make."""
    serializers: tuple[str, ...] = ()
    """File suffixes its hook `serializers` can write and read, e.g. `.npz`."""
    executors: tuple[str, ...] = ()
    """Names of the executors its hook `executors` gives."""


def read_manifest(module: str) -> Manifest:
    """The manifest of the package that holds `module`; works for wheels and editable installs alike.

    Raises:
        ManifestError: the package or the file is missing, or a field is.
    """
    path = package_folder(module) / "rlsdk.toml"
    try:
        data = read_toml(path)
    except PlainFileError as error:
        raise ManifestError(f"its manifest {one_line(path, 300)} {error}") from None
    if data is None:
        raise ManifestError(f"it has no manifest: {one_line(path, 300)} does not exist")
    return parse_manifest(data)


def package_folder(module: str) -> Path:
    """The folder of the package that holds `module`; `find_spec` of a *top-level* package locates it without running it.

    Raises:
        ManifestError: there is none.
    """
    package = module.partition(".")[0]
    try:
        spec = find_spec(package)
    except Exception:  # a script, a notebook, or an import hook of another distribution that fails
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ManifestError(f"its package {package!r} cannot be found")
    return Path(next(iter(spec.submodule_search_locations)))


def checked_manifest(manifest: Manifest) -> Manifest:
    """A manifest made in Python, held to the rules of those in files.

    Raises:
        ManifestError: it breaks one.
    """
    values = {
        name: list(value) if isinstance(value, tuple) else value for name, value in attrs.asdict(manifest).items()
    }
    return parse_manifest({name: value for name, value in values.items() if value is not None})


def parse_manifest(data: dict[str, Any]) -> Manifest:
    """A checked manifest from the parsed file.

    Written by hand, not with cattrs: listing reads manifests, and cattrs alone would cost a third of its time budget.
    """
    fields = {f.name: f for f in attrs.fields(Manifest)}
    if unknown := sorted(set(data) - set(fields)):
        raise ManifestError(f"its manifest has unknown fields {shown(unknown)}; known are {sorted(fields)}")
    required = [n for n, f in fields.items() if f.default is attrs.NOTHING]
    if missing := [n for n in required if n not in data]:
        raise ManifestError(f"its manifest lacks {missing}")
    lists = [n for n, f in fields.items() if f.default == ()]
    for name, value in data.items():
        wanted = list if name in lists else str
        if not isinstance(value, wanted) or (wanted is list and not all(isinstance(v, str) for v in value)):
            raise ManifestError(
                f"its manifest field {name!r} must be a {'list of strings' if wanted is list else 'string'}"
            )
    _check_texts(data)
    _check_names(data)
    _check_purpose(data)
    values: dict[str, Any] = {n: tuple(v) if n in lists else v for n, v in data.items()}
    return Manifest(**values)


def _check_texts(data: dict[str, Any]) -> None:
    """Texts go to terminals and tables: one line, without control characters."""
    for name, value in data.items():
        texts = value if isinstance(value, list) else [value]
        if len(texts) > MOST_ITEMS or any(len(text) > MOST_TEXT for text in texts):
            raise ManifestError(
                f"its manifest field {name!r} is too long: {MOST_ITEMS} items of {MOST_TEXT} characters"
            )
        if any(not text.isprintable() for text in texts):
            raise ManifestError(f"its manifest field {name!r} holds control characters or more than one line")


def _check_names(data: dict[str, Any]) -> None:
    for name, (pattern, accepted) in _NAMES.items():
        texts = data.get(name, [])
        for text in texts if isinstance(texts, list) else [texts]:
            if not pattern.fullmatch(text):
                raise ManifestError(f"its manifest field {name!r} has {shown(text, 60)}; accepted: {accepted}")
            if text.lower() in RESERVED.get(name, ()):
                raise ManifestError(
                    f"its manifest field {name!r} has {text!r}, which is the SDK's own; choose another name"
                )


def _check_purpose(data: dict[str, Any]) -> None:
    """An algorithm names its family, spaces and policies; a plugin without one provides something else."""
    if "family" not in data:
        if not any(data.get(name) for name in EXTENSIONS):
            raise ManifestError(
                f"its manifest provides nothing: neither a family (an algorithm) nor any of {EXTENSIONS}"
            )
        return
    if data["family"] not in FAMILIES:
        raise ManifestError(f"its manifest names family {shown(data['family'], 60)}; accepted: {', '.join(FAMILIES)}")
    if missing := [name for name in ("actions", "observations", "policies") if not data.get(name)]:
        raise ManifestError(f"its manifest lacks {missing}, which an algorithm needs")
    for name in ("actions", "observations"):
        if wrong := sorted(set(data[name]) - set(SPACES)):
            raise ManifestError(f"its manifest lists unknown {name} {shown(wrong)}; accepted: {', '.join(SPACES)}")
