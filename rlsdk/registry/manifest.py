"""What a plugin says about itself: `rlsdk.toml`, beside its code. Reading it runs none of that code."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from rlsdk.registry.spec import FAMILIES, Family

EXTENSIONS = ("sinks", "environments", "serializers", "executors")
SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


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
    """Free-form capabilities, e.g. `requires_action_mask`, `recurrent`, `gsde`."""
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
        return parse_manifest(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise ManifestError(f"it has no manifest: {path} cannot be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"its manifest {path} is not valid TOML: {error}") from None


def package_folder(module: str) -> Path:
    """The folder of the package that holds `module`; `find_spec` of a *top-level* package locates it without running it.

    Raises:
        ManifestError: there is none.
    """
    package = module.partition(".")[0]
    try:
        spec = find_spec(package)
    except ValueError:  # a script or a notebook
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ManifestError(f"its package {package!r} cannot be found")
    return Path(next(iter(spec.submodule_search_locations)))


def parse_manifest(data: dict[str, Any]) -> Manifest:
    """A checked manifest from the parsed file.

    Written by hand, not with cattrs: listing reads manifests, and cattrs alone would cost a third of its time budget.
    """
    fields = {f.name: f for f in attrs.fields(Manifest)}
    if unknown := sorted(set(data) - set(fields)):
        raise ManifestError(f"its manifest has unknown fields {unknown}; known are {sorted(fields)}")
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
    _check_purpose(data)
    values: dict[str, Any] = {n: tuple(v) if n in lists else v for n, v in data.items()}
    return Manifest(**values)


def _check_purpose(data: dict[str, Any]) -> None:
    """An algorithm names its family, spaces and policies; a plugin without one provides something else."""
    if "family" not in data:
        if not any(data.get(name) for name in EXTENSIONS):
            raise ManifestError(
                f"its manifest provides nothing: neither a family (an algorithm) nor any of {EXTENSIONS}"
            )
        return
    if data["family"] not in FAMILIES:
        raise ManifestError(f"its manifest names family {data['family']!r}; accepted: {', '.join(FAMILIES)}")
    if missing := [name for name in ("actions", "observations", "policies") if not data.get(name)]:
        raise ManifestError(f"its manifest lacks {missing}, which an algorithm needs")
    for name in ("actions", "observations"):
        if wrong := sorted(set(data[name]) - set(SPACES)):
            raise ManifestError(f"its manifest lists unknown {name} {wrong}; accepted: {', '.join(SPACES)}")
