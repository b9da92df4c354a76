"""Find plugins by entry point; load one only when it is asked for.

States: found -> valid (manifest and SDK range are good) -> loaded -> usable, or broken with a reason. A broken plugin is
listed with its cause and harms nobody else; asking for it raises with that cause.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

import attrs

from rlsdk.errors import PluginError, suggest
from rlsdk.registry.guard import protected
from rlsdk.registry.manifest import Manifest, ManifestError, read_manifest
from rlsdk.registry.spec import AlgorithmSpec

GROUP = "rlsdk.plugins"
HOOKS = {
    "sinks": "metric_sinks",
    "environments": "environment_makers",
    "serializers": "serializers",
    "executors": "executors",
}
"""Manifest field -> hook that gives what the field names."""

SWITCH = "RLSDK_PLUGINS"
"""Environment variable: unset = all, `off` = none, `name,...` = only these ids."""


@attrs.frozen(kw_only=True)
class Plugin:
    """One entry point, or one explicit registration, as far as it can be known without importing it."""

    id: str
    distribution: str
    version: str
    module: str
    manifest: Manifest | None = None
    problem: str | None = None
    """Why it cannot be used; None when nothing is known to be wrong."""

    @property
    def qualified_id(self) -> str:
        """`distribution/id`: unique even where two distributions offer the same id."""
        return f"{self.distribution}/{self.id}"


_registered: dict[str, tuple[Plugin, AlgorithmSpec]] = {}


@cache
def _scan() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.dist.name if e.dist else "")))


def plugins(*, rescan: bool = False) -> tuple[Plugin, ...]:
    """Every installed or registered plugin, broken ones too, sorted by id. Imports neither torch nor plugin code."""
    if rescan:
        _scan.cache_clear()
        _look.cache_clear()
        _call_installed.cache_clear()
    registered = tuple(plugin for plugin, _ in _registered.values())
    switch = os.environ.get(SWITCH, "").strip()
    if switch == "off":
        return registered
    wanted = {name.strip() for name in switch.split(",") if name.strip()}
    installed = [_look(e) for e in _scan() if not wanted or e.name in wanted]
    return tuple(sorted((*installed, *registered), key=lambda p: p.qualified_id))


@cache
def _look(entry: EntryPoint) -> Plugin:
    distribution, number = (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "unknown")
    plugin = Plugin(id=entry.name, distribution=distribution, version=number, module=entry.module)
    try:
        manifest = read_manifest(entry.module)
    except ManifestError as error:
        return attrs.evolve(plugin, problem=str(error))
    return attrs.evolve(plugin, manifest=manifest, problem=_mismatch(entry.name, manifest))


def _mismatch(name: str, manifest: Manifest) -> str | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if manifest.id != name:
        return f"its entry point is called {name!r} but its manifest says id = {manifest.id!r}; make them equal"
    try:
        wanted = SpecifierSet(manifest.sdk)
    except InvalidSpecifier:
        return f"its manifest's sdk = {manifest.sdk!r} is no version range; write for example '>=0.1,<0.2'"
    if not wanted.contains(version("rlsdk"), prereleases=True):
        return (
            f"it needs rlsdk {manifest.sdk}, installed is {version('rlsdk')}; install a version of the plugin that fits"
        )
    return None


def algorithms() -> tuple[Plugin, ...]:
    """The plugins that bring an algorithm, and those too broken to tell. Imports neither torch nor plugin code."""
    return tuple(p for p in plugins() if p.manifest is None or p.manifest.family is not None)


def find(name: str) -> Plugin:
    """The one algorithm called `name` (`id`, or `distribution/id`).

    Raises:
        PluginError: nothing has that name, or two distributions have it.
    """
    everything = algorithms()
    matches = [p for p in everything if name in (p.id, p.qualified_id)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " and ".join(p.qualified_id for p in matches)
        raise PluginError(f"{name!r} is offered by two installed distributions; say which you mean: {names}")
    switch = os.environ.get(SWITCH)
    hint = f" ({SWITCH}={switch!r} hides installed plugins)" if switch else ""
    if not everything:
        raise PluginError(
            f"no algorithm {name!r}: no plugin is installed{hint}; install one, e.g. pip install rlsdk-tqc"
        )
    raise PluginError(f"no installed plugin offers {name!r}{hint}; {suggest(name, [p.id for p in everything])}")


def load(name: str) -> AlgorithmSpec:
    """The spec of one algorithm. Only its plugin is imported; a failure names it and keeps the cause.

    Raises:
        PluginError: unknown, ambiguous, incompatible, no algorithm, or its code fails.
    """
    plugin = find(name)
    if plugin.qualified_id in _registered:
        return _registered[plugin.qualified_id][1]
    spec: AlgorithmSpec = _call(plugin, "algorithm")
    return spec


def extension(kind: str, name: str) -> Callable[..., Any]:
    """What the one plugin whose manifest lists `name` under `kind` gives for it.

    `kind` is `sinks`, `environments`, `serializers` or `executors`.

    Raises:
        PluginError: nobody offers it, several do, or the plugin is broken.
    """
    offers = {p.qualified_id: p for p in plugins() if p.manifest and name in getattr(p.manifest, kind)}
    if len(offers) > 1:
        raise PluginError(
            f"{name!r} ({kind}) is offered by several plugins: {', '.join(offers)}; uninstall all but one"
        )
    if not offers:
        raise PluginError(f"no installed plugin offers {name!r} ({kind}); {suggest(name, extensions(kind))}")
    (plugin,) = offers.values()
    given = _call(plugin, HOOKS[kind]) or {}
    if name not in given:
        raise PluginError(
            f"{plugin.qualified_id} is broken: its manifest lists {name!r}, its hook gives {sorted(given)}"
        )
    function: Callable[..., Any] = given[name]
    return function


def extensions(kind: str) -> tuple[str, ...]:
    """The names all manifests list under `kind`; no plugin is imported."""
    return tuple(
        sorted({name for p in plugins() if p.manifest and not p.problem for name in getattr(p.manifest, kind)})
    )


def _call(plugin: Plugin, hook: str) -> Any:
    if plugin.problem:
        raise PluginError(f"{plugin.qualified_id} {plugin.version} cannot be used: {plugin.problem}")
    return _call_installed(plugin, hook)


@cache
def _call_installed(plugin: Plugin, hook: str) -> Any:
    """The answer of one hook of one plugin, which is imported alone and under guard."""
    import pluggy

    from rlsdk.registry import hooks

    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    try:
        with protected(plugin.qualified_id):
            for entry in _scan():
                if (entry.name, entry.module) == (plugin.id, plugin.module):
                    manager.register(entry.load(), name=plugin.qualified_id)
            manager.check_pending()
            answer = getattr(manager.hook, hook)()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin that calls sys.exit() must not end the host
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(f"{plugin.qualified_id} {plugin.version} is broken: importing it raised {cause}") from error
    if hook == "algorithm":
        _check_spec(answer, plugin)
    return answer


def _check_spec(spec: Any, plugin: Plugin) -> None:
    who = f"{plugin.qualified_id} {plugin.version} is broken"
    if not isinstance(spec, AlgorithmSpec):
        raise PluginError(f"{who}: its hook `algorithm` returned {spec!r}, not an AlgorithmSpec")
    manifest = plugin.manifest
    if manifest and (spec.id, spec.family, spec.policies) != (manifest.id, manifest.family, manifest.policies):
        raise PluginError(f"{who}: id, family and policies of its spec differ from those of its manifest")


def register(spec: AlgorithmSpec, manifest: Manifest) -> Plugin:
    """Make an algorithm that is not installed known to this process, e.g. from a notebook.

    Raises:
        PluginError: the id is taken by another registration; `unregister` it first.
    """
    plugin = Plugin(id=spec.id, distribution="registered", version="0", module=spec.build.__module__, manifest=manifest)
    _check_spec(spec, plugin)
    if plugin.qualified_id in _registered:
        raise PluginError(f"{spec.id!r} is registered already; call rlsdk.registry.unregister({spec.id!r}) first")
    _registered[plugin.qualified_id] = (plugin, spec)
    return plugin


def unregister(name: str) -> None:
    """Forget an explicit registration.

    Raises:
        PluginError: nothing is registered under that id.
    """
    if _registered.pop(f"registered/{name}", None) is None:
        raise PluginError(f"{name!r} is not registered; {suggest(name, [p.id for p, _ in _registered.values()])}")
