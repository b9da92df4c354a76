"""Import one plugin, alone and under guard, when something of it is used."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, cast

from rlsdk.errors import PluginError, RlsdkError, shown, suggest
from rlsdk.registry.discovery import (
    FORGET,
    GROUP,
    HOOKS,
    Plugin,
    check_spec,
    described,
    entries,
    find,
    look,
    plugin_in,
    plugins,
    registered,
    registrations,
    unusable,
)
from rlsdk.registry.manifest import ManifestError, NoManifestError, read_manifest
from rlsdk.registry.named import Named, spec_of
from rlsdk.registry.spec import AlgorithmSpec

ONE_AT_A_TIME = threading.RLock()
"""Held while a plugin is imported: the guard puts back state of the whole process."""


def load(name: str) -> AlgorithmSpec:
    """The spec of one algorithm. Only its plugin is imported; a failure names it and has the cause as `__cause__`.

    Raises:
        PluginError: unknown, ambiguous, incompatible, no algorithm, or its code fails.
    """
    plugin = find(name)
    spec = registered(plugin)
    if spec is not None:
        return spec
    return cast("AlgorithmSpec", _call(plugin, "algorithm"))  # `check_spec` has checked it


def extension(kind: str, name: str) -> Callable[..., Any]:
    """What the one plugin whose manifest lists `name` under `kind` gives for it.

    `kind` is `sinks`, `environments`, `serializers` or `executors`.

    Raises:
        PluginError: no plugin offers it, several do, or the plugin is broken.
    """
    offers = [p for p in plugins() if p.manifest and name in getattr(p.manifest, kind)]
    usable = [p for p in offers if p.problem is None] or offers
    if len(usable) > 1:
        names = ", ".join(p.qualified_id for p in usable)
        raise PluginError(f"{name!r} ({kind}) is offered by several plugins: {names}; uninstall all but one")
    if not usable:
        raise PluginError(f"no installed plugin offers {shown(name, 100)} ({kind}); {suggest(name, extensions(kind))}")
    given = extensions_of(usable[0], kind)
    if name not in given:
        raise PluginError(
            f"{usable[0].qualified_id} is broken: its manifest lists {name!r}, its hook gives {shown(sorted(given))}"
        )
    return given[name]


def extensions_of(plugin: Plugin, kind: str) -> Mapping[str, Callable[..., object]]:
    """Everything of `kind` that one plugin gives.

    Raises:
        PluginError: the plugin is broken.
    """
    given = _call(plugin, HOOKS[kind]) or {}
    if not isinstance(given, Mapping) or not all(isinstance(n, str) and callable(f) for n, f in given.items()):
        raise PluginError(
            f"{plugin.qualified_id} is broken: its hook `{HOOKS[kind]}` returned {shown(given)}; return a table of names"
            " and functions"
        )
    return given


def extensions(kind: str) -> tuple[str, ...]:
    """The names all manifests list under `kind`; no plugin is imported."""
    return tuple(
        sorted({name for p in plugins() if p.manifest and not p.problem for name in getattr(p.manifest, kind)})
    )


def is_offered(kind: str, name: str) -> bool:
    """Whether a plugin lists `name` under `kind`, also one that cannot be used: then `extension` raises."""
    return any(p.manifest and name in getattr(p.manifest, kind) for p in plugins())


def plugin_of(spec: AlgorithmSpec) -> Plugin | None:
    """The plugin a spec came from: registered, or of the same package; None for a spec that no plugin gave."""
    for plugin, known in registrations():
        if known is spec:
            return plugin
    packages = {_package(each) for each in (spec.config_type, spec.build)}
    own = [p for p in map(look, entries()) if p.id == spec.id and p.module.partition(".")[0] in packages]
    return own[0] if own else None


def require_usable(spec: AlgorithmSpec) -> None:
    """Raises PluginError where the plugin of a spec does not work with this version of rlsdk, or is broken."""
    for plugin in (plugin_of(spec), *(plugin_in(_package(each)) for each in (spec.config_type, spec.build))):
        if plugin is not None and plugin.problem is not None:
            raise unusable(plugin)


def spec_of_class(kind: type) -> AlgorithmSpec | None:
    """The spec in the manifest of the package that defines `kind`, where the manifest names that class as its `agent`.

    Raises:
        PluginError: there is a manifest, and it cannot be used.
    """
    place = f"{kind.__module__}:{kind.__qualname__}"
    try:
        manifest = read_manifest(kind.__module__)
    except NoManifestError:
        return None
    except ManifestError as error:
        raise PluginError(f"{place} cannot be used: {error}") from None
    return spec_of(manifest) if manifest.agent == place else None


def agent_type(spec: AlgorithmSpec) -> type[object] | None:
    """The plugin's own class, imported under guard; None for a spec that names none.

    Raises:
        PluginError: its code fails, or gives something else.
    """
    if spec.agent is None:
        return None
    require_usable(spec)
    with ONE_AT_A_TIME:
        return _agent_type(spec.id, plugin_of(spec), spec.agent)


@cache
def _agent_type(identity: str, plugin: Plugin | None, agent: Callable[[], type[object]]) -> type[object]:
    """The class that `agent` imports; imported once, as the guard would undo what other threads do meanwhile."""
    who = identity if plugin is None else _name(plugin)
    found = _guarded(who, plugin, agent)
    if not isinstance(found, type) or getattr(found, "spec", None) is None:
        raise PluginError(f"{who} is broken: its `agent` returned {shown(found)}; return its subclass of rlsdk.Agent")
    return found


FORGET.append(_agent_type.cache_clear)


def _package(value: object) -> str:
    """The top-level package of a function or class."""
    module = value.module if isinstance(value, Named) else getattr(value, "__module__", "")
    return str(module).partition(".")[0]


def _call(plugin: Plugin, hook: str) -> object:
    if plugin.problem:
        raise unusable(plugin)
    with ONE_AT_A_TIME:
        return _call_installed(plugin, hook)


@cache
def _call_installed(plugin: Plugin, hook: str) -> object:
    """The answer of one hook of one plugin."""
    manifest = plugin.manifest
    if hook == "algorithm" and manifest is not None and manifest.build:
        return _guarded(_name(plugin), plugin, lambda: spec_of(manifest))
    answer = _guarded(_name(plugin), plugin, lambda: _imported(plugin, hook))
    if hook == "algorithm":
        check_spec(answer, plugin)
    return answer


FORGET.extend((_call_installed.cache_clear, spec_of.cache_clear))


def _imported(plugin: Plugin, hook: str) -> object:
    import pluggy

    from rlsdk.registry import hooks

    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    entry = next(e for e in entries() if look(e) == plugin)
    place = f"{entry.module}:{entry.attribute}" if entry.attribute else entry.module
    manager.register(EntryPoint(entry.name, place, GROUP).load(), name=plugin.qualified_id)
    manager.check_pending()
    return getattr(manager.hook, hook)()


def _name(plugin: Plugin) -> str:
    """Distribution, id and version."""
    return f"{plugin.qualified_id} {plugin.version}"


def _guarded(who: str, plugin: Plugin | None, work: Callable[[], object]) -> object:
    """What `work` of a plugin returns; its side effects are undone and warned of.

    Raises:
        PluginError: it raised, or had side effects where warnings are errors.
    """
    from rlsdk.registry.guard import PluginSideEffect, protected  # listing needs none of it

    try:
        with protected(who) as effects:
            answer = work()
    except (KeyboardInterrupt, RlsdkError):
        raise
    except BaseException as error:  # a plugin that calls sys.exit() must not end the process
        raise PluginError(f"{who} is broken: importing it raised {described(error, plugin)}") from error
    try:
        for effect in effects:
            warnings.warn(f"plugin {who} {effect} while it was imported", PluginSideEffect, stacklevel=5)
    except PluginSideEffect as effect:
        raise PluginError(f"{effect}; warnings are errors in this process") from None
    return answer
