"""Finds plugins without running their code: entry points, manifests, and the range of SDK versions they accept.

The states of a plugin: found -> valid (its manifest is correct and this SDK is in its range) -> loaded -> usable; or broken. A
broken plugin is listed with the reason and does not affect the others. Using it raises an error with that reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import attrs

from rlsdk.errors import PluginError, closest, message_of, one_line, shown, suggest
from rlsdk.registry.manifest import (
    AlgorithmSpec,
    Manifest,
    ManifestError,
    NoManifestError,
    checked_manifest,
    package_folder,
    read_manifest,
)
from rlsdk.runtime.files import PlainFileError, read_plain, read_text
from rlsdk.runtime.packages import pip_install

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

ALGORITHMS = "algorithms"
"""The extra of rlsdk that installs the algorithm packages of this project, which are called rlsdk-ID."""
SWITCH = "RLSDK_PLUGINS"
"""Environment variable that limits the installed plugins: unset = all, `off` = none, `name,...` = only these ids."""


@attrs.frozen(kw_only=True)
class Plugin:
    """A plugin from an entry point or an explicit registration: what can be read without importing its code."""

    id: str
    distribution: str
    version: str
    module: str = ""
    attribute: str = ""
    """The dotted name of an object in the module, whose hooks count; empty for those of the module itself."""
    manifest: Manifest | None = None
    problem: str | None = None
    """Why the plugin cannot be used; None if no problem is known."""

    @property
    def qualified_id(self) -> str:
        """The name `distribution/id`, which is unique even if two distributions offer the same id."""
        return f"{self.distribution}/{self.id}"

    @property
    def is_registered(self) -> bool:
        """Whether it exists only in this process, because `register` was called for it."""
        return self.qualified_id in registered

    def broken(self, cause: str) -> PluginError:
        """Return the error that names this plugin and its version as broken."""
        return PluginError(f"{self.qualified_id} {self.version} is broken: {cause}")

    def require_usable(self) -> None:
        """Raises PluginError if the plugin has a problem."""
        if self.problem is not None:
            raise PluginError(f"{self.qualified_id} {self.version} cannot be used: {self.problem}")

    def tables(self, folder: str) -> dict[str, Path]:
        """Return name -> file for the TOML files in `folder` of the plugin's package, sorted by name; {} if there are none.

        The name is the path in `folder` without the suffix, such as `subfolder/name`. No code of the plugin runs.
        """
        try:
            place = package_folder(self.module) / folder
            found = {path.relative_to(place).with_suffix("").as_posix(): path for path in place.rglob("*.toml")}
        except (ManifestError, OSError):  # the plugin is registered from a script or a notebook
            return {}
        return {name: found[name] for name in sorted(found) if name.isprintable()}


registered: dict[str, tuple[Plugin, AlgorithmSpec]] = {}
"""`registered/id` -> plugin and spec of the algorithms that were registered in this process."""
FORGET: list[Callable[[], None]] = []
"""Functions that `plugins(rescan=True)` calls to clear further caches, such as the results of hooks."""


def plugins(*, rescan: bool = False) -> tuple[Plugin, ...]:
    """Return every installed or registered plugin, also broken ones, sorted by `distribution/id`.

    Imports neither torch nor plugin code. With `rescan` the caches are cleared and everything is read again.
    """
    if rescan:
        entries.cache_clear()
        look.cache_clear()
        _manifest.cache_clear()
        plugin_in.cache_clear()
        for forget in FORGET:
            forget()
    own = tuple(plugin for plugin, _ in registered.values())
    switch = os.environ.get(SWITCH, "").strip()
    if switch == "off":
        return own
    wanted = {name.strip() for name in switch.split(",") if name.strip()}
    installed = [look(found) for found in entries() if not wanted or found.id in wanted]
    return tuple(sorted((*installed, *own), key=attrgetter("qualified_id")))


@cache
def look(found: Plugin) -> Plugin:
    """Return one of `entries()` with its manifest. No code of the plugin is imported."""
    if found.problem is not None:
        return found
    manifest = _manifest(found.module.partition(".")[0])
    if isinstance(manifest, ManifestError):
        return attrs.evolve(found, problem=str(manifest))
    return attrs.evolve(found, manifest=manifest, problem=_mismatch(found, manifest))


@cache
def _manifest(package: str) -> Manifest | ManifestError:
    """Return the manifest of a package, or why it cannot be read.

    It is cached because a package may have thousands of entry points, and reading a manifest takes 1 ms.
    """
    try:
        return read_manifest(package)
    except ManifestError as error:
        return error


@cache
def plugin_in(package: str) -> Plugin | None:
    """Return the plugin whose code is in a top-level package; None if the package has no manifest.

    The package is installed, or only importable from `sys.path`.
    """
    for found in entries():
        if found.module.partition(".")[0] == package:
            return look(found)
    manifest = _manifest(package)
    if isinstance(manifest, NoManifestError):
        return None
    if isinstance(manifest, ManifestError):
        return Plugin(id=package, distribution=package, version="0", module=package, problem=str(manifest))
    return look(Plugin(id=manifest.id, distribution=package, version="0", module=package))


def described(error: BaseException, plugin: Plugin | None) -> str:
    """Return class and message of an error that importing a plugin raised, on one line.

    If it imports a name that the SDK does not have, or a package of this project that is not installed, the text also names the
    fix.
    """
    cause = one_line(f"{type(error).__name__}: {message_of(error)}", 500)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(f"{SDK}_"):
        return f"{cause}; {pip_install(str(error.name).partition('.')[0].replace('_', '-'))}"
    if plugin is None or plugin.manifest is None or not is_missing_from_sdk(error):
        return cause
    packages = (SDK,) if plugin.distribution == REGISTERED else (SDK, plugin.distribution)
    return (
        f"{cause}; its range is {SDK} {plugin.manifest.sdk}, and {SDK} {sdk_version()} has no such name; "
        f"install versions that fit each other: {pip_install(*packages, options='--upgrade')}"
    )


def _mismatch(plugin: Plugin, manifest: Manifest) -> str | None:
    if manifest.id != plugin.id:
        return f"its entry point is called {plugin.id!r} but its manifest has id = {manifest.id!r}; make them equal"
    return misfit(manifest.sdk, sdk_version(), plugin.distribution)


def algorithms() -> tuple[Plugin, ...]:
    """Return the plugins that offer an algorithm, and those whose manifest cannot be read.

    Imports neither torch nor plugin code.
    """
    return tuple(p for p in plugins() if p.manifest is None or p.manifest.family is not None)


def find(name: str) -> Plugin:
    """Return the algorithm plugin called `name`, an `id` or `distribution/id`.

    If several plugins have the name, broken ones are ignored.

    Raises:
        PluginError: no plugin has that name, two distributions have it, or several have it and all are broken.
    """
    everything = algorithms()
    matches = [p for p in everything if name in (p.id, p.qualified_id)]
    # A broken plugin must not take an id away from one that works; if all are broken, the message names the causes.
    usable = [p for p in matches if p.problem is None] or matches
    if len(usable) == 1:
        return usable[0]
    if usable and all(p.problem for p in usable):
        causes = "; ".join(f"{p.qualified_id}: {p.problem}" for p in usable)
        raise PluginError(f"{name!r} is offered by broken plugins only: {causes}")
    if usable:
        names = " and ".join(p.qualified_id for p in usable)
        raise PluginError(f"{name!r} is offered by two installed distributions; name one of them: {names}")
    raise PluginError(f"no installed plugin offers {shown(name, 100)}{_where_from(str(name), everything)}")


def _where_from(name: str, everything: tuple[Plugin, ...]) -> str:
    """Return the end of an error message: how to install an algorithm that is not installed, or which id was perhaps meant."""
    switch = os.environ.get(SWITCH)
    hint = f" ({SWITCH}={switch!r} hides installed plugins)" if switch else ""
    installed, ours = {plugin.id for plugin in everything}, _published()
    # Only packages of this project: anyone can publish a package under a mistyped name.
    if name in ours:
        return f"{hint}; install it: {pip_install(f'rlsdk-{name}')}"
    if not everything:
        return f"{hint}: no plugin is installed; install one, e.g. {pip_install('rlsdk-tqc')}"
    near = closest(name, installed | ours)
    if near in ours - installed:
        return f"{hint}; did you mean {near!r}? install it: {pip_install(f'rlsdk-{near}')}"
    return f"{hint}; {suggest(name, installed)}"


def _published() -> frozenset[str]:
    """Return the ids of this project's algorithms, read from the metadata of the package rlsdk."""
    with contextlib.suppress(PackageNotFoundError):
        lines = requires("rlsdk") or []
        return frozenset(
            re.split(r"[^\w-]", line)[0].removeprefix("rlsdk-")
            for line in lines
            if re.search(f"extra == ['\"]{ALGORITHMS}['\"]", line)
        )
    return frozenset()


def check_spec(spec: object, plugin: Plugin) -> None:
    """Raise PluginError unless `spec` is an `AlgorithmSpec` and agrees with the manifest of the plugin."""
    if not isinstance(spec, AlgorithmSpec):
        raise plugin.broken(f"its hook `algorithm` returned {shown(spec)}, not an AlgorithmSpec")
    names = ("id", "family", "policies", "info") if plugin.manifest else ()
    pairs = {name: (getattr(spec, name), getattr(plugin.manifest, name)) for name in names}
    if wrong := [f"{n} = {shown(a)} in the spec, {shown(b)} in the manifest" for n, (a, b) in pairs.items() if a != b]:
        raise plugin.broken(f"its spec and its manifest differ: {'; '.join(wrong)}; make them equal")


def register(spec: AlgorithmSpec, manifest: Manifest) -> Plugin:
    """Register an algorithm that is not installed, for example from a notebook. It can be used in this process only.

    Raises:
        PluginError: the id is registered already (`unregister` it first), the manifest breaks a rule or needs another version
            of rlsdk, or spec and manifest differ.
    """
    module = getattr(spec.build, "__module__", None) or "__main__"
    plugin = Plugin(id=spec.id, distribution=REGISTERED, version="0", module=module, manifest=manifest)
    check_spec(spec, plugin)
    try:
        problem = _mismatch(plugin, checked_manifest(manifest))
    except ManifestError as error:
        problem = str(error)
    if problem is not None:
        raise PluginError(f"{plugin.qualified_id} cannot be used: {problem}")
    if plugin.qualified_id in registered:
        raise PluginError(f"{spec.id!r} is registered already; call rlsdk.registry.unregister({spec.id!r}) first")
    registered[plugin.qualified_id] = (plugin, spec)
    return plugin


def unregister(name: str) -> None:
    """Remove the algorithm that was registered under the id `name`.

    Raises:
        PluginError: nothing is registered under that id.
    """
    if registered.pop(f"{REGISTERED}/{name}", None) is None:
        raise PluginError(f"{name!r} is not registered; {suggest(name, [p.id for p, _ in registered.values()])}")


# The entry points of installed distributions. A damaged one is listed as broken, and the others are still found.
#
# `importlib.metadata.entry_points` raises an error for all distributions if one of them is not UTF-8 or has a line
# without `=`, and it never returns if one of the files is a pipe. So it is used only to find the distributions.

GROUP = "rlsdk.plugins"
_LIMIT = 1024 * 1024
"""The largest size of a metadata file in bytes; a package may have thousands of entry points, and RECORD lists all files."""
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})\s*=\s*([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[[^\]]*\])?")
_FORM = "is not NAME = MODULE or NAME = MODULE:OBJECT, with names of letters, digits, '-', '_' and '.'"


@cache
def entries() -> tuple[Plugin, ...]:
    """Return a plugin for each entry point of the group `rlsdk.plugins`, also broken ones, sorted by name.

    They are read once and cached; `look` adds their manifests. If a distribution is installed several times, only the first
    copy is used.
    """
    found: dict[str, list[Plugin]] = {}
    with contextlib.suppress(OSError, ValueError):  # a folder on the path cannot be listed
        # Not `entry_points()`: one damaged file would make it fail for all distributions.
        for distribution in distributions():
            # no public name; a zip archive has none, nor a manifest on disk
            folder = getattr(distribution, "_path", None)
            if isinstance(folder, Path):
                # name and version of the folder, not of METADATA, which may be missing or claim to be another distribution
                name, _, version = folder.name.rpartition(".")[0].partition("-")
                name = re.sub(r"[-_.]+", "-", name).lower()
                # As Python does, which imports from the first copy on the path.
                if name not in found:
                    found[name] = _entries(folder, one_line(name, 100), one_line(version or "unknown", 100))
    return tuple(sorted((e for every in found.values() for e in every), key=lambda e: (e.id, e.distribution)))


def _entries(folder: Path, distribution: str, version: str) -> list[Plugin]:
    try:
        text = read_text(folder / "entry_points.txt", _LIMIT) or ""
    except PlainFileError as error:
        problem = f"its entry_points.txt {error}; install it again"
        broken = Plugin(id=distribution, distribution=distribution, version=version, problem=problem)
        return [broken] if _is_ours(folder) else []
    known: dict[str, Plugin] = {}
    for line in _lines(text) if GROUP in text else ():
        place, name = _LINE.fullmatch(line), one_line(line.partition("=")[0].strip(), 100) or distribution
        entry = Plugin(id=name, distribution=distribution, version=version)
        if name in known:
            known[name] = attrs.evolve(entry, problem="its entry_points.txt names it more than once")
        elif place is None:
            known[name] = attrs.evolve(entry, problem=f"its entry point {one_line(line, 100)!r} {_FORM}")
        else:
            known[name] = attrs.evolve(entry, module=place[2], attribute=place[3] or "")
    return list(known.values())


def _is_ours(folder: Path) -> bool:
    """Return whether a distribution whose entry points cannot be read is a plugin, that is, contains an rlsdk.toml."""
    with contextlib.suppress(PlainFileError):
        return b"/rlsdk.toml" in (read_plain(folder / "RECORD", _LIMIT) or b"")
    return False


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of the section `rlsdk.plugins`, without comments and empty lines."""
    inside = False
    for line in map(str.strip, text.split("\n")):
        if line.startswith("["):
            inside = line[-1] == "]" and line.strip("[] \t") == GROUP
        elif inside and line and not line.startswith(("#", ";")):
            yield line


SDK = "rlsdk"
REGISTERED = "registered"
"""The name used as distribution of plugins that were registered in this process. They have no package to install."""


@cache
def sdk_version() -> str:
    """Return the version of the running rlsdk. It is cached, because reading it takes 1 ms."""
    try:
        return version(SDK)
    except PackageNotFoundError:  # rlsdk is imported from its sources and not installed
        found: str = sys.modules[SDK].__version__
        return found


def misfit(stated: str, here: str, distribution: str) -> str | None:
    """Return why a plugin of `distribution` with the SDK range `stated` cannot be used with the SDK version `here`.

    None if it can be used.
    """
    # Imported here: 35 ms, and not every command reads a manifest.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(stated)
    except InvalidSpecifier:
        return f"its manifest's sdk = {shown(stated, 60)} is not a version range; write for example '>=0.1,<0.2'"
    # Development versions count too: authors try plugins with them.
    if wanted.contains(here, prereleases=True):
        return None
    other_sdk = pip_install(SDK + stated)
    if _is_newer(wanted, here):
        fix = f"install a newer SDK: {other_sdk}"
    elif distribution == REGISTERED:
        fix = f"install an older SDK: {other_sdk}"
    else:
        newer_plugin = pip_install(distribution, options="--upgrade")
        fix = f"install a newer version of the plugin: {newer_plugin}, or an older SDK: {other_sdk}"
    return f"it needs {SDK} {stated}, installed is {here}; {fix}"


def _is_newer(wanted: SpecifierSet, here: str) -> bool:
    """Return whether the range `wanted` begins above the version `here`."""
    from packaging.version import InvalidVersion, Version

    lower_bounds = [each.version.removesuffix(".*") for each in wanted if each.operator in (">=", ">", "~=", "==")]
    try:
        return any(Version(bound) > Version(here) for bound in lower_bounds)
    except InvalidVersion:
        return False


def is_missing_from_sdk(error: BaseException) -> bool:
    """Return whether an error was raised because rlsdk does not have a module or name."""
    if isinstance(error, ImportError):
        place = error.name or ""
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        place = error.obj.__name__
    else:
        return False
    return place.partition(".")[0] == SDK
