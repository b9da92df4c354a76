"""The manifest of an agent file: algorithm, settings, spaces and versions; its checks, and the limit on what it may build."""

from __future__ import annotations

import math
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from io import TextIOBase
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeVar, cast

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import (
    ArtifactError,
    PluginError,
    RlsdkError,
    SettingsError,
    UnsupportedSpaceError,
    UsageError,
    fitting,
    one_line,
    require_file_name,
    shown,
)
from rlsdk.interfaces import BuildContext, State
from rlsdk.kernels.structure import BEFORE_OPERATION
from rlsdk.networks.encoders import encoded_slices
from rlsdk.registry import AlgorithmSpec, find, plugins
from rlsdk.registry import load as load_plugin
from rlsdk.registry.loading import agent_type, is_offered, plugin_of, spec_of_class
from rlsdk.runtime.files import PATH_SETTINGS, may_be_place
from rlsdk.runtime.packages import pip_install
from rlsdk.settings import merge, unstructure
from rlsdk.settings.load import nested
from rlsdk.settings.strict import docstring
from rlsdk.spaces import Dict, Space, Tuple, choice_places, dtype_of, from_json, leaf_spaces, to_json
from rlsdk.storage import archive
from rlsdk.storage.archive import AGENT_KIND

KIND = AGENT_KIND
SUFFIX = ".rlsdk"
SHOWN_FILES = 5
"""The largest number of existing files that the error about a missing file names."""
NOT_RESTORED = ("env", *PATH_SETTINGS)
"""Settings (dotted names) that are not stored and must be passed again at loading, so that no file chooses where to write."""
FREE = re.compile(r".*_kwargs\.")
"""Settings with arguments for classes of the user. It is unknown which of these arguments name files or folders."""
FileManifest = dict[str, Any]
"""A manifest whose entries `require_manifest` has checked, so that code reads them without checks."""
MAX_ENVS = 2**20
ENTRIES: dict[str, type] = {
    "algorithm": str,
    "num_envs": int,
    "seed": int,
    "config": dict,
    "not_stored": list,
    "observation_space": dict,
    "action_space": dict,
}
"""Entry that every manifest has -> its type."""
FURTHER_ENTRIES: dict[str, type] = {
    "plugin": dict,
    "environment": str,
    "num_timesteps": int,
    "action_masks": bool,
    "system": dict,
}
"""Entry that may be missing or null -> its type."""
RANGES = {"num_envs": range(1, MAX_ENVS + 1), "seed": range(2**63)}
"""Entry -> its accepted numbers."""
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
        ArtifactError: `path` names no file, or no file can have this name.
    """
    target = Path(path)
    if target.name in ("", ".."):
        raise ArtifactError(f"{str(path)!r} names no file; give a name such as 'agent'")
    # most names have no suffix: plugins are asked only about others
    known = target.suffix in (SUFFIX, ".zip") or (target.suffix and is_offered("serializers", target.suffix))
    complete = target if known else target.with_name(target.name + SUFFIX)
    require_file_name(complete)
    return complete


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
    plain, suffixed = Path(path), as_agent_file(path)
    if plain.is_file():
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


def describe_agent(agent: AssembledAgent) -> dict[str, object]:
    """The manifest of an agent: its algorithm, plugin, settings, spaces, counts and package versions."""
    plugin = plugin_of(agent.spec) or find(agent.spec.id)
    settings = _without(_storable(unstructure(agent.config)), NOT_RESTORED)
    return {
        "kind": KIND,
        "algorithm": agent.spec.id,
        "plugin": {"distribution": plugin.distribution, "version": plugin.version},
        "environment": agent.env_name,
        "num_envs": agent.context.num_envs,
        "config": settings,
        "not_stored": sorted(_objects(settings)),
        "observation_space": to_json(agent.context.observation_space),
        "action_space": to_json(agent.context.action_space),
        "system": system_info(),
        "seed": agent.seed,
        "num_timesteps": agent.total_steps - agent.step_offset,  # without the steps of a round that is running
        **({"action_masks": True} if agent.trains_with_masks else {}),
    }


def inspect_file(path: str | Path | IO[bytes]) -> FileManifest:
    """Read the manifest of an agent file, with the dtype and shape of each tensor. Reads no tensor, and needs no plugin.

    Raises:
        ArtifactError: the file is missing, damaged, or not of an agent.
    """
    return require_manifest(archive.inspect(existing(path), kind=KIND))


def require_manifest(document: FileManifest) -> FileManifest:
    """Check the entries of a manifest that was read, and return it.

    Raises:
        ArtifactError: an entry is missing, or has another type or a number out of range.
    """
    for name, kind in (ENTRIES | FURTHER_ENTRIES).items():
        value = document.get(name)
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if not (fits or (value is None and name in FURTHER_ENTRIES)) or (name in RANGES and value not in RANGES[name]):
            raise ArtifactError(f"the file is damaged: its manifest has {name} = {repr(value)[:80]}")
    texts = {
        "not_stored": document["not_stored"],
        **{
            name: [text for text in (document.get(name) or {}).values() if text is not None]
            for name in ("plugin", "system")
        },
    }
    for name, entries in texts.items():
        if wrong := [entry for entry in entries if not isinstance(entry, str)]:
            raise ArtifactError(
                f"the file is damaged: {name} in its manifest has {repr(wrong[0])[:80]}, which is not a text"
            )
    return document


def _storable(value: object) -> Any:
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


def _objects(settings: Mapping[str, object]) -> list[str]:
    """The dotted names of settings that a file cannot store."""
    return [name for name, value in _named(settings) if _is_object(value)]


def _named(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted name, value) of all settings: of tables, and of the settings in them."""
    for key, value in settings.items():
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _named(value, f"{prefix}{key}.")


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


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a setting and of the lists in it. Those of tables are settings of their own, see `_named`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts([*item, *item.values()] if isinstance(item, Mapping) else item)


def restored_config(document: FileManifest, replacements: Mapping[str, object]) -> dict[str, object]:
    """The settings of a file, where `replacements` (dotted name -> value) replace the stored values.

    Raises:
        ArtifactError: `replacements` lack a setting that was an object or an argument that may name a file or folder.
    """
    missing: list[str] = document["not_stored"]
    settings, given = _without(document["config"], NOT_RESTORED), {name for name, _ in _named(replacements)}
    whole = [f"{name}." for name in given if not any(other.startswith(f"{name}.") for other in given)]
    absent = [name for name in missing if name not in {*given, *NOT_RESTORED} and not name.startswith(tuple(whole))]
    if absent:
        example = f"custom_objects={{{absent[0]!r}: ...}}"
        raise ArtifactError(
            f"the agent was made with objects that files do not store; give {absent} again: load(..., {example})"
        )
    free = [(name, value) for name, value in _named(settings) if FREE.match(name) and name not in given]
    places = [name for name, value in free if any(may_be_place(name.rpartition(".")[2], t) for t in _texts(value))]
    if places:
        raise ArtifactError(
            f"the file's settings {sorted(places)} may name files or folders, which no file may choose; give them again:"
            f" load(..., custom_objects={{{min(places)!r}: ...}})"
        )
    # remove the placeholders of objects
    settings = _without(settings, given.intersection(missing))
    for name, value in replacements.items():
        stored = settings.get(name)
        given_now = value
        # the path of recorded data must have the digest of the file
        if isinstance(stored, Mapping) and set(stored) == {"name", "digest"} and isinstance(value, str | PathLike):
            given_now = {"path": str(value), "digest": stored["digest"]}
        settings = merge(settings, nested(name.split("."), given_now))
    return settings


_PACKAGE, _VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), re.compile(r"[\w.!+-]{1,100}")
UNKNOWN = "unknown"


def made_with(document: FileManifest) -> tuple[str, str]:
    """(distribution, version) of the plugin that a file was made with; `unknown` for an entry that is missing or malformed."""
    plugin = document.get("plugin") or {}
    known = (plugin.get("distribution"), _PACKAGE), (plugin.get("version"), _VERSION)
    name, number = (value if value and pattern.fullmatch(value) else UNKNOWN for value, pattern in known)
    return name, number


def spec_for(document: FileManifest) -> AlgorithmSpec:
    """The spec of the algorithm of a file. If several installed plugins offer the algorithm, that of the file's plugin.

    Raises:
        PluginError: its plugin is not installed or is broken.
    """
    name, (distribution, _) = document["algorithm"], made_with(document)
    qualified = f"{distribution}/{name}"
    installed = any(plugin.qualified_id == qualified for plugin in plugins())
    try:
        return load_plugin(qualified if installed else name)
    except PluginError as error:
        missing = not installed and distribution not in (UNKNOWN, "registered")
        fix = f"; install its plugin: {pip_install(distribution)}" if missing else ""
        raise PluginError(
            f"the file holds a {shown(name, 100)} agent made with {distribution}: {error}{fix}"
        ) from error


def upgraded(document: FileManifest, sections: State, spec: AlgorithmSpec) -> tuple[FileManifest, State]:
    """(document, sections) of a file, converted to the form that the installed plugin writes.

    The plugin converts its settings and state with `AlgorithmSpec.upgrade`.

    Raises:
        ArtifactError: that function fails. PluginError: it does not return settings and state.
    """
    if spec.upgrade is None:
        return document, sections
    _, number = made_with(document)
    with fitting(f"the file cannot be changed from version {number} of its plugin to the one that is installed"):
        answer = spec.upgrade(dict(document["config"]), dict(sections), number)
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, dict) for part in answer):
        raise PluginError(f"{spec.id} is broken: its `upgrade` returned {shown(answer)}; return (settings, state)")
    settings, state = answer
    left_out = [name for name in document["not_stored"] if name.partition(".")[0] in settings]
    return {**document, "config": settings, "not_stored": left_out}, state


@contextmanager
def naming(source: Path | IO[bytes], document: FileManifest, spec: AlgorithmSpec) -> Iterator[None]:
    """Add to errors inside the block the file, the version of the plugin it was made with, and the installed version."""
    try:
        yield
    except RlsdkError as error:
        plugin, (distribution, number) = plugin_of(spec), made_with(document)
        file = str(source) if isinstance(source, Path) else "the file"
        if plugin is not None and (distribution, number) == (plugin.distribution, plugin.version):
            raise type(error)(str(error) if file in str(error) else f"{file}: {error}") from error
        here = f", installed is {plugin.distribution} {plugin.version}" if plugin is not None else ""
        if plugin is not None and UNKNOWN not in (distribution, number) and number != plugin.version:
            here += f"; {pip_install(f'{distribution}=={number}')}, or give other settings: load(..., custom_objects={{...}})"
        raise type(error)(f"{error}; {file} was made with {distribution} {number}{here}") from error


@contextmanager
def blaming_the_file(own: bool) -> Iterator[None]:
    """Turn errors about settings, spaces and buffers inside the block into errors about the file.

    `own`: whether the settings are the file's; errors about settings that the caller changed are raised unchanged.
    """
    try:
        yield
    except (SettingsError, UnsupportedSpaceError, UsageError) as error:
        if not own:
            raise
        raise ArtifactError(f"the file is damaged, or of another version of its algorithm: {error}") from None


def require_finite(mine: Callable[[], State], stored: State, where: str) -> None:
    """Raise ArtifactError if a stored tensor has NaN or infinite values, unless the new agent has the same ones.

    Training raises an error at such values before it could save them. `mine` returns the state of the new agent. It is called
    only for such values, because hardly a file has them.
    """
    for name, value in tree.flatten(stored).items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            built = tree.flatten(mine()).get(name)
            if not isinstance(built, Tensor) or built.shape != value.shape or not torch.equal(built.cpu(), value):
                raise ArtifactError(f"the file is damaged: {name} of its {where} holds NaN or infinity")


SPACES = ("observation_space", "action_space")
"""Entries of manifests with the spaces of an agent."""


def spaces_of(context: BuildContext) -> dict[str, object]:
    """The spaces of an agent as manifests hold them, without those that have no entries."""
    spaces = {name: getattr(context, name) for name in SPACES}
    return {name: to_json(space) for name, space in spaces.items() if isinstance(space, Dict | Tuple)}


def require_same_entries(document: Mapping[str, object], context: BuildContext) -> None:
    """Check that recorded steps have the entries of Dicts and Tuples that the agent has, which its buffer finds by sorted key.

    Raises:
        ArtifactError: they have others, or discrete actions in another order, in which stored action masks count them.
    """
    for name in SPACES:
        # the stored space has no Dict or Tuple
        if document.get(name) is None:
            continue
        space, stored = getattr(context, name), from_json(document[name])
        paths = [{path for path, _ in leaf_spaces(each)} for each in (space, stored)]
        if paths[0] != paths[1] or (name == "action_space" and choice_places(space, stored) is not None):
            raise ArtifactError(
                f"the file holds steps with the entries {_entries(stored)} of the {name.replace('_', ' ')}, the agent has"
                f" {_entries(space)}; load it into an agent with the same entries in the same order"
            )


def require_same_places(document: Mapping[str, object], context: BuildContext) -> None:
    """Check that weights and statistics, which belong to entries of Dicts and Tuples by position, belong to the same ones here.

    `document` has the spaces of the stored agent, as `spaces_of` returns them. Their entries must be the first ones of the
    agent's spaces.

    Raises:
        ArtifactError: they are others, or in another order.
    """
    for name in SPACES:
        space = getattr(context, name)
        if document.get(name) is None or not isinstance(space, Dict | Tuple):
            continue
        stored = from_json(document[name])
        if type(space) is not type(stored):
            continue
        mine, theirs = (encoded_slices(each) for each in (space, stored))
        kinds = [[(path, type(leaf), dtype_of(leaf)) for path, leaf in leaf_spaces(each)] for each in (space, stored)]
        ends = [list(slices.values())[-1].stop for slices in (mine, theirs)]
        if kinds[0][: len(theirs)] != kinds[1] or (ends[0] == ends[1] and mine != theirs):
            raise ArtifactError(
                f"the stored weights belong to the entries {_entries(stored)} of the {name.replace('_', ' ')} by position, and"
                f" the agent has {_entries(space)}; load_policy(file, env) takes over the order of the file, and needs an"
                " environment with all of its entries"
            )


def _entries(space: Space) -> str:
    """The entries of a nested space and the number of their values, in order."""
    parts = (f"{path} of {part.stop - part.start}" for path, part in encoded_slices(space, "").items())
    return one_line(", ".join(parts), 200)


def require_same_shapes(mine: State, stored: State, where: str) -> None:
    """Raise ArtifactError if the stored weights have other names or shapes than those of `mine`."""
    shapes = [
        {name: value.shape for name, value in tree.flatten(state).items() if isinstance(value, Tensor)}
        for state in (mine, stored)
    ]
    if shapes[0] != shapes[1]:
        raise ArtifactError(f"the file is damaged: its {where} has weights of other shapes than its policy")


FREE_BYTES = 512 * 2**20
PER_BYTE = 16
"""The allowed bytes of networks, targets, gradients and optimizers per byte of the file, in addition to `FREE_BYTES`."""
FREE_WORK = 2e10
"""The allowed multiplications for orthogonal initial weights, for a file of any size."""
BY_SIZE = ("empty", "zeros", "ones", "rand", "randn", "full")
OF_TENSOR = ("new_empty", "new_zeros", "new_ones", "new_full")


@contextmanager
def construction_limit(state: State) -> Iterator[None]:
    """Limit the total size of tensors that networks make inside the block, for the agent of a file with the tensors of `state`.

    `SeededDraws`, the mode that seeds initial weights, calls the check before each operation of torch. A second mode would cost
    another call of Python for each of them, 700 for a small agent.

    Raises:
        ArtifactError: at an operation of torch, before it would allocate a tensor that passes the limit.
    """
    size = sum(leaf.nbytes for leaf in tree.flatten(state).values() if isinstance(leaf, Tensor))
    left, work_left = FREE_BYTES + PER_BYTE * size, FREE_WORK + float(size) ** 1.5

    def charge(name: str, args: Sequence[object], options: Mapping[str, object]) -> None:
        nonlocal left, work_left
        if name in BY_SIZE or name in OF_TENSOR:
            size, dtype = args[name in OF_TENSOR], options.get("dtype")
            itemsize = dtype.itemsize if isinstance(dtype, torch.dtype) else 4
            left -= math.prod(size if isinstance(size, Sequence) else ()) * itemsize
        elif name == "linalg_qr" and isinstance(matrix := args[0], Tensor):
            work_left -= matrix.numel() * min(matrix.shape[-2:])
        if left < 0 or work_left < 0:
            raise ArtifactError(
                "the file's settings and spaces describe networks that are far larger than the file; they do not belong to it"
            )

    before = BEFORE_OPERATION.set(charge)
    try:
        yield
    finally:
        BEFORE_OPERATION.reset(before)


class AnyAgent(Protocol):
    """`rlsdk.Agent` or a subclass of it."""

    spec: ClassVar[AlgorithmSpec]
    _assembled: AssembledAgent


AgentT = TypeVar("AgentT", bound=AnyAgent)
NOT_CALLED = {
    "trainings": (
        "train",
        "collect_rollouts",
        "_store_transition",
        "_sample_action",
        "_setup_model",
        "_update_learning_rate",
    ),
    "evaluations": ("predict",),
}
"""Activity -> methods that it does not call, so that overriding them has no effect; most are internal in stable-baselines3."""


def set_spec(cls: type[Any]) -> None:
    """Set the `spec` of a new subclass of `rlsdk.Agent`, and warn of overridden methods that would have no effect."""
    if "spec" not in vars(cls) and (spec := spec_of_class(cls)) is not None:
        cls.spec = spec
    if "spec" in vars(cls):
        cls.policy_aliases = {name: name for name in cls.spec.policies}
    for caller, names in NOT_CALLED.items():
        if overridden := [name for name in names if name in vars(cls)]:
            warnings.warn(
                f"{cls.__name__} overrides {', '.join(overridden)}, which {caller} do not call; change what is learned"
                " in a plugin (rlsdk new), what happens during training in a callback, and actions in a wrapper of the"
                " environment",
                RuntimeWarning,
                stacklevel=3,
            )


def class_of(spec: AlgorithmSpec, base: type[AgentT]) -> type[AgentT]:
    """The agent class that the plugin defines, or a generated one if it defines none; a subclass of `base`.

    Raises:
        PluginError: the plugin's class is not a subclass of `base`.
    """
    own = agent_type(spec)
    if own is None:
        members = {"spec": spec, "__doc__": docstring(spec.config_type)}
        return cast("type[AgentT]", type(spec.id.replace("-", "_").upper(), (base,), members))
    if not issubclass(own, base):
        raise PluginError(f"the class that {spec.id!r} names, {own.__name__}, is not a subclass of rlsdk.Agent")
    return own


def class_for(document: FileManifest, asked: type[AgentT], base: type[AgentT]) -> type[AgentT]:
    """The class for the agent in a file: `asked`, the class whose `load` was called, or if that is `base` the plugin's class.

    Raises:
        ArtifactError: the file holds an agent of another algorithm than `asked`. PluginError: its plugin is not installed, or
        is broken.
    """
    name = document["algorithm"]
    if asked is base:
        return class_of(spec_for(document), base)
    if asked.spec.id != name:
        raise ArtifactError(
            f"the file holds a {shown(name, 100)} agent, not a {asked.spec.id!r}; rlsdk.load(path) opens any"
        )
    return asked
