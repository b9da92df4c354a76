"""The manifest of a plugin: `rlsdk.toml`, beside its code. Reading it runs none of that code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import attrs

from rlsdk.errors import one_line, shown
from rlsdk.registry.plain_files import PlainFileError, read_toml
from rlsdk.registry.spec import MaskUse

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
    "zoo": (re.compile(r"[A-Za-z0-9_-]{0,60}"), "the name of a folder: letters, digits, '-' and '_'"),
    "serializers": (re.compile(r"\.[A-Za-z0-9_-]{1,30}"), "a file suffix such as '.npz'"),
    **dict.fromkeys(
        ("sinks", "environments", "executors", "policies", "traits"),
        (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), "letters, digits, '-', '_' and '.'"),
    ),
}
_PLACE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*):([A-Za-z_][A-Za-z0-9_]*)")
OF_SPEC = ("build", "config", "agent", "from_sb3", "upgrade")
PLACES = (*OF_SPEC, "testing_settings", "testing_bounds", "testing_exceptions")
"""Fields that name a function, a class or a dictionary as `module:name`."""
TABLE, COUNT, MOST_ENVS = "policy_classes", "default_envs", 10_000
MASK_USES = get_args(MaskUse)
MOST_TEXT, MOST_ITEMS = 1000, 100


class ManifestError(Exception):
    """Why a manifest cannot be used; `discovery` turns it into the plugin's `problem`."""


class NoManifestError(ManifestError):
    """There is no package, or no manifest in it."""


@attrs.frozen(kw_only=True)
class Manifest:
    """The static description of one plugin: an algorithm, or extensions, or trained agents."""

    id: str
    title: str
    summary: str
    sdk: str
    """Range of SDK versions, as in `>=0.1,<0.2`."""
    family: str | None = None
    """A label for listing, such as on-policy, off-policy, population; None for a plugin that brings no algorithm."""
    actions: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    """Capabilities: of `rlsdk.testing`'s list, which `rlsdk check` tries, or of your own, which begin with `x-`."""
    info: tuple[str, ...] = ()
    """Entries of environments' `info` that the algorithm needs, e.g. `cost`: numbers, given at every step."""
    policy_classes: tuple[tuple[str, str], ...] = ()
    """Class of sb3-contrib that users import -> the policy it is; in the file a table, `TQCPolicy = "MlpPolicy"`."""
    action_masks: MaskUse = "ignored"
    """See `AlgorithmSpec`; so for `live`, `build`, `agent`, `from_sb3` and `upgrade`."""
    live: tuple[str, ...] = ()
    default_envs: int = 1
    """Copies of an environment given by its id, where no number is given."""
    build: str = ""
    """`package.build:build`; empty where the hook `algorithm` gives the spec."""
    config: str = ""
    """`package.config:Config`, the class of the settings."""
    agent: str = ""
    """`package.agent:Class`, the class that users import; empty = one is made."""
    from_sb3: str = ""
    upgrade: str = ""
    testing_settings: str = ""
    """`package.testing:SETTINGS`, a dictionary: see `AlgorithmSpec`. Imported by the contract kit only; so are the next two."""
    testing_bounds: str = ""
    testing_exceptions: str = ""
    paper: str = ""
    sinks: tuple[str, ...] = ()
    """Names of the metric sinks its hook `metric_sinks` gives."""
    environments: tuple[str, ...] = ()
    """Namespaces of the environment ids its hook `environment_makers` can make."""
    serializers: tuple[str, ...] = ()
    """File suffixes its hook `serializers` can write and read, e.g. `.npz`."""
    executors: tuple[str, ...] = ()
    """Names of the executors its hook `executors` gives."""
    zoo: str = ""
    """Folder of the package with trained agents, such as `agents`; see `rlsdk.zoo`."""


def read_manifest(module: str) -> Manifest:
    """The manifest of the package that holds `module`; works for wheels and editable installs alike.

    Raises:
        ManifestError: the package or the file is missing, a field is, or one names something outside the package.
    """
    path = package_folder(module) / "rlsdk.toml"
    try:
        data = read_toml(path)
    except PlainFileError as error:
        raise ManifestError(f"its manifest {one_line(path, 300)} {error}") from None
    if data is None:
        raise NoManifestError(f"it has no manifest: {one_line(path, 300)} does not exist")
    manifest = parse_manifest(data)
    _check_package(manifest, module.partition(".")[0])
    return manifest


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
        raise NoManifestError(f"its package {package!r} cannot be found")
    return Path(next(iter(spec.submodule_search_locations)))


def checked_manifest(manifest: Manifest) -> Manifest:
    """A manifest made in Python, held to the rules of those in files.

    Raises:
        ManifestError: it breaks one.
    """
    values = {
        name: list(value) if isinstance(value, tuple) else value for name, value in attrs.asdict(manifest).items()
    }
    values["policy_classes"] = dict(manifest.policy_classes)
    return parse_manifest({name: value for name, value in values.items() if value is not None})


def parse_manifest(data: Mapping[str, object]) -> Manifest:
    """A checked manifest from the parsed file.

    Written by hand, not with cattrs: listing reads manifests, and cattrs alone would cost a third of its time budget.
    """
    fields = {f.name: f for f in attrs.fields(Manifest)}
    if unknown := sorted(set(data) - set(fields)):
        raise ManifestError(f"its manifest has unknown fields {shown(unknown)}; known are {sorted(fields)}")
    required = [n for n, f in fields.items() if f.default is attrs.NOTHING]
    if missing := [n for n in required if n not in data]:
        raise ManifestError(f"its manifest lacks {missing}")
    lists = [n for n, f in fields.items() if f.default == () and n != TABLE]
    for name, value in data.items():
        if name == COUNT:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ENVS:
                raise ManifestError(f"its manifest field {name!r} must be a whole number from 1 to {MOST_ENVS}")
            continue
        kind: type[object] = dict if name == TABLE else list if name in lists else str
        wanted = "string" if kind is str else f"{'table' if name == TABLE else 'list'} of strings"
        if not isinstance(value, kind) or not all(isinstance(text, str) for text in _inside(value)):
            raise ManifestError(f"its manifest field {name!r} must be a {wanted}")
        _check_texts(name, [str(text) for text in _inside(value)])
    manifest = Manifest(**{name: _frozen(value) for name, value in data.items()})
    _check_names(manifest)
    _check_purpose(manifest)
    _check_places(manifest)
    return manifest


def _inside(value: object) -> list[object]:
    """A text, the items of a list, or the keys and values of a table."""
    return [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]


def _frozen(value: object) -> Any:
    """A field of `Manifest`, as its checked value in a file gives it."""
    return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value


def _check_places(manifest: Manifest) -> None:
    """What names functions and classes: `module:name`, the settings and what builds from them together."""
    for field in PLACES:
        if (place := getattr(manifest, field)) and not _PLACE.fullmatch(place):
            raise ManifestError(
                f"its manifest field {field!r} has {shown(place, 60)}; write module:name, such as 'my_package.{field}:{field}'"
            )
    if given := [field for field in OF_SPEC if getattr(manifest, field)]:
        if missing := [field for field in ("family", "build", "config") if not getattr(manifest, field)]:
            raise ManifestError(f"its manifest has {given[0]} but lacks {missing}; give them too")
    elif manifest.live or manifest.action_masks != MASK_USES[0]:
        raise ManifestError("its manifest has live or action_masks, which go with build and config; give those too")
    if manifest.action_masks not in MASK_USES:
        raise ManifestError(
            f"its manifest has action_masks = {shown(manifest.action_masks, 60)}; accepted: {', '.join(MASK_USES)}"
        )
    for name, policy in manifest.policy_classes:
        if not name.isidentifier() or policy not in manifest.policies:
            raise ManifestError(
                f"its manifest has {shown(name, 60)} = {shown(policy, 60)} in {TABLE}; give a Python name, and one of its"
                " policies"
            )


def _check_package(manifest: Manifest, package: str) -> None:
    """A manifest names what its own package holds, nothing else."""
    for field in PLACES:
        place = getattr(manifest, field)
        if place and place.partition(":")[0].partition(".")[0] != package:
            raise ManifestError(
                f"its manifest field {field!r} has {shown(place, 60)}; name something in its package, {package}"
            )


def _check_texts(name: str, texts: list[str]) -> None:
    """Texts go to terminals and tables: one line, without control characters."""
    if len(texts) > MOST_ITEMS or any(len(text) > MOST_TEXT for text in texts):
        raise ManifestError(f"its manifest field {name!r} is too long: {MOST_ITEMS} items of {MOST_TEXT} characters")
    if any(not text.isprintable() for text in texts):
        raise ManifestError(f"its manifest field {name!r} holds control characters or more than one line")


def _check_names(manifest: Manifest) -> None:
    for name, (pattern, accepted) in _NAMES.items():
        texts = getattr(manifest, name)
        for text in texts if isinstance(texts, tuple) else [texts]:
            if not pattern.fullmatch(text):
                raise ManifestError(f"its manifest field {name!r} has {shown(text, 60)}; accepted: {accepted}")
            if text.lower() in RESERVED.get(name, ()):
                raise ManifestError(
                    f"its manifest field {name!r} has {text!r}, which is the SDK's own; choose another name"
                )


def _check_purpose(manifest: Manifest) -> None:
    """An algorithm names its family, spaces and policies; a plugin without one provides something else."""
    if manifest.family is None:
        if not any(getattr(manifest, name) for name in (*EXTENSIONS, "zoo")):
            raise ManifestError(
                f"its manifest provides nothing: neither a family (an algorithm) nor any of {(*EXTENSIONS, 'zoo')}"
            )
        return
    if not manifest.family:
        raise ManifestError(
            "its manifest has an empty family; give it a label, such as on-policy, off-policy or population"
        )
    if missing := [name for name in ("actions", "observations", "policies") if not getattr(manifest, name)]:
        raise ManifestError(f"its manifest lacks {missing}, which an algorithm needs")
    for name in ("actions", "observations"):
        if wrong := sorted(set(getattr(manifest, name)) - set(SPACES)):
            raise ManifestError(f"its manifest lists unknown {name} {shown(wrong)}; accepted: {', '.join(SPACES)}")
