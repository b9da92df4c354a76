"""Import a plugin when it is first used. Only that plugin is imported, and the process is protected (see `guard`)."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from itertools import chain
from typing import Any, cast

import attrs

from rlsdk.errors import PluginError, RlsdkError, SettingsError, message_of, one_line, raised, shown, suggest
from rlsdk.registry.discovery import (
    FORGET,
    GROUP,
    Plugin,
    check_spec,
    described,
    entries,
    find,
    is_missing_from_sdk,
    look,
    plugin_in,
    plugins,
    registered,
)
from rlsdk.registry.manifest import CALLED, AlgorithmSpec, Manifest, ManifestError, NoManifestError, read_manifest


@attrs.frozen
class Named:
    """A function or class that the field `field` in the manifest of `plugin` names. Calling a `Named` imports and calls it.

    `place` is its path `module:name`. The manifest was checked: the module belongs to the plugin's own package.
    """

    plugin: str
    field: str
    place: str

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        return self.place.partition(":")[0]

    def require_module(self) -> None:
        """Check that the module exists. This imports the packages that contain the module, but not the module.

        Raises:
            PluginError: there is no such module.
        """
        try:
            found = find_spec(self.module)
        # `find_spec` imports the packages around the module, and one of those may be missing.
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise self._broken(f"there is no module {self.module}")

    def value(self) -> Any:
        """Import and return the function or class.

        Raises:
            PluginError: there is none of that name, or its module imports something that this SDK does not have.
        """
        # First: otherwise a failing import inside the module would look as if the module were missing.
        if self.module not in sys.modules:
            self.require_module()
        with self._naming_the_plugin():
            module, name = import_module(self.module), self.place.partition(":")[2]
        try:
            return getattr(module, name)
        except AttributeError:
            known = sorted(each for each in vars(module) if not each.startswith("_"))
            raise self._broken(f"{self.module} has no {name!r}; {suggest(name, known)}") from None

    def __call__(self, *args: object) -> Any:
        """Import the function, call it and return its result.

        Raises:
            PluginError: there is none of that name, it cannot be called, or it uses something that this SDK does not have.
        """
        function = self.value()
        if not callable(function):
            raise self._broken(f"that is {shown(function, 60)}, which cannot be called; name a function")
        with self._naming_the_plugin():
            return function(*args)

    @contextmanager
    def _naming_the_plugin(self) -> Iterator[None]:
        """Turn errors about names that this SDK does not have into a PluginError with the plugin, its range and the fix."""
        try:
            yield
        except (AttributeError, ImportError) as error:
            if is_missing_from_sdk(error):
                raise self._broken(described(error, plugin_in(self.module.partition(".")[0]))) from error
            raise

    def _broken(self, cause: str) -> PluginError:
        return PluginError(f"{self.plugin!r} is broken: its manifest has {self.field} = {self.place!r}, but {cause}")


@cache
def spec_of(manifest: Manifest) -> AlgorithmSpec:
    """Return the spec that a manifest with `build` and `config` describes. It imports only the module of the settings.

    Raises:
        PluginError: `config` does not name an attrs class, `live` names an unknown setting, or a module is missing.
    """
    named = {
        field: Named(manifest.id, field, place)
        for field in ("config", "build", "agent", "from_sb3", "upgrade")
        if (place := getattr(manifest, field))
    }
    # All of them, so that a mistake in `upgrade` shows now and not when the first old file is read.
    for each in named.values():
        each.require_module()
    config, agent = named["config"].value(), named.get("agent")
    if not isinstance(config, type) or not attrs.has(config):
        raise PluginError(
            f"{manifest.id!r} is broken: config = {manifest.config!r} of its manifest is {shown(config, 60)}; name an attrs"
            " class that derives from rlsdk.settings.AgentConfig"
        )
    known = [field.name for field in attrs.fields(config)]
    live = (*getattr(config, "LIVE", ()), *manifest.live)
    if unknown := sorted(set(live) - set(known)):
        raise PluginError(
            f"{manifest.id!r} is broken: live of its manifest names {unknown}; its settings are {', '.join(known)}"
        )
    # `build` and `agent` are not imported yet: they import torch, which listing and settings do without.
    return AlgorithmSpec(
        id=manifest.id,
        family=manifest.family or "",
        config_type=config,
        build=named["build"],
        policies=manifest.policies,
        agent=agent and agent.value,
        from_sb3=named.get("from_sb3"),
        upgrade=named.get("upgrade"),
        action_masks=manifest.action_masks,
        info=manifest.info,
        live=live,
        default_envs=manifest.default_envs,
    )


SECONDS = 60.0
"""The time limit of importing a plugin or calling a hook in this process."""
ONE_AT_A_TIME = threading.RLock()
"""The lock that is held while a plugin is imported, because the guard restores state of the whole process."""


def load(name: str) -> AlgorithmSpec:
    """Return the spec of the algorithm called `name`. Only its plugin is imported.

    Raises:
        PluginError: the name is unknown or ambiguous, or the plugin is incompatible, offers no algorithm or its code fails. If
            its code failed, `__cause__` is that exception.
    """
    plugin = find(name)
    if plugin.is_registered:
        return registered[plugin.qualified_id][1]
    return cast("AlgorithmSpec", _call(plugin, "algorithm"))  # `check_spec` has checked it


def extension(kind: str, name: str) -> Callable[..., Any]:
    """Return the function that a plugin gives for `name`, such as the function that makes the sink of that name.

    The manifest of that plugin lists `name` under `kind`: one of `HOOKS`, such as `sinks`, or a table of functions,
    `commands`, `importers` or `inspectors`.

    Raises:
        PluginError: no plugin or several plugins offer `name`, or the plugin is broken.
    """
    offers = [p for p in plugins() if name in _listed(p, kind)]
    # As in `find`: a broken plugin takes no name away from one that works.
    usable = [p for p in offers if p.problem is None] or offers
    if len(usable) > 1:
        names = ", ".join(p.qualified_id for p in usable)
        raise PluginError(f"{name!r} ({kind}) is offered by several plugins: {names}; uninstall all but one")
    if not usable:
        raise PluginError(f"no installed plugin offers {shown(name, 100)} ({kind}); {suggest(name, extensions(kind))}")
    if kind in CALLED:
        return _called(usable[0], kind, name)
    given = extensions_of(usable[0], kind)
    if name not in given:
        raise usable[0].broken(f"its manifest lists {name!r}, its hook gives {shown(sorted(given))}")
    return given[name]


def _listed(plugin: Plugin, kind: str) -> tuple[str, ...]:
    """Return the names that the manifest of a plugin lists under `kind`."""
    listed = getattr(plugin.manifest, kind, ())
    return tuple(dict(listed)) if kind in CALLED else listed


def _called(plugin: Plugin, kind: str, name: str) -> Callable[..., Any]:
    """Import and return the function that a table of the manifest names.

    Raises:
        PluginError: the plugin is broken, there is no such function, or importing its module raises an exception.
    """
    plugin.require_usable()
    place = dict(getattr(plugin.manifest, kind))[name][0]
    with ONE_AT_A_TIME:
        found = _guarded(_name(plugin), plugin, Named(plugin.id, kind, place).value)
    if not callable(found):
        raise plugin.broken(f"{kind} = {place!r} of its manifest is {shown(found, 60)}; name a function")
    return found


def extensions_of(plugin: Plugin, kind: str) -> Mapping[str, Callable[..., object]]:
    """Return name -> function for all extensions of `kind` that one plugin gives.

    Raises:
        PluginError: the plugin is broken.
    """
    given = _call(plugin, kind) or {}
    if not isinstance(given, Mapping) or not all(isinstance(n, str) and callable(f) for n, f in given.items()):
        raise plugin.broken(f"its hook `{kind}` returned {shown(given)}; return a table of names and functions")
    return given


def extensions(kind: str) -> tuple[str, ...]:
    """Return the names that the manifests of usable plugins list under `kind`, sorted. No plugin is imported."""
    return tuple(sorted({name for p in plugins() if not p.problem for name in _listed(p, kind)}))


def require_kernels_of(packages: tuple[str, ...], variable: str, states: tuple[str, ...]) -> None:
    """Raise SettingsError if a package that the environment variable names is not installed, or offers no kernels."""
    known = [plugin.distribution for plugin, names in _with_kernels() if names]
    for name in packages:
        if name not in known:
            raise SettingsError(
                f"the environment variable {variable} is {','.join(packages)!r}, and no installed package {name!r} offers"
                f" kernels; {suggest(name, (*states, *known))}"
            )


def _with_kernels() -> list[tuple[Plugin, tuple[str, ...]]]:
    """Return each plugin that lists kernels in its manifest, with their names."""
    return [(plugin, plugin.manifest.kernels) for plugin in map(look, entries()) if plugin.manifest]


def offered_kernels(packages: tuple[str, ...] = ()) -> tuple[dict[str, Callable[..., Any]], tuple[str, ...]]:
    """Return (name -> function of all kernels that installed packages offer, what is wrong with others).

    `packages`: the distributions whose kernels are used, the preferred first; (): all. A kernel that two packages offer is none
    unless `packages` orders them: the choice would depend on their names. `RLSDK_PLUGINS` does not hide kernels: it chooses
    among algorithms and the like, and a training with fewer kernels would be slower without a word.
    """
    offers: dict[str, list[Plugin]] = {}
    found: dict[str, Callable[..., Any]] = {}
    problems: list[str] = []
    for plugin, names in _with_kernels():
        for name in names if not packages or plugin.distribution in packages else ():
            offers.setdefault(name, []).append(plugin)
    if packages:
        offers = {name: [min(each, key=lambda p: packages.index(p.distribution))] for name, each in offers.items()}
    for plugin in dict.fromkeys(chain.from_iterable(offers.values())):
        own = {name for name, plugins_of_it in offers.items() if plugins_of_it == [plugin]}
        try:
            table = extensions_of(plugin, "kernels")
            found.update({name: table[name] for name in own & set(table)})
            if missing := sorted(own - set(table)):
                problems.append(str(plugin.broken(f"its manifest lists the kernels {missing}, its hook gives none")))
        except RlsdkError as error:
            if type(error.__cause__).__name__ == "TookTooLong":  # results must not depend on how busy the machine is
                raise PluginError(f"{message_of(error)}, or set RLSDK_KERNELS=off to train without kernels") from None
            problems.append(message_of(error))
    for several in dict.fromkeys(tuple(each) for each in offers.values() if len(each) > 1):
        shared = ", ".join(name for name, each in offers.items() if tuple(each) == several)
        owners = " and ".join(plugin.qualified_id for plugin in several)
        preferred = ",".join(plugin.distribution for plugin in several)
        problems.append(
            f"the kernels {shared} are offered by {owners}; name the packages to use, the preferred first, such as"
            f" RLSDK_KERNELS={preferred}, or uninstall all but one"
        )
    return found, tuple(problems)


def is_offered(kind: str, name: str) -> bool:
    """Return whether a plugin lists `name` under `kind`, also a plugin that cannot be used: `extension` raises for it."""
    return any(name in _listed(p, kind) for p in plugins())


def offered_commands() -> dict[str, tuple[tuple[Plugin, tuple[str, ...]], ...]]:
    """Return name -> (plugin, (place, summary, example)) of each usable plugin that has a command of that name, sorted.

    No plugin is imported.
    """
    found: dict[str, tuple[tuple[Plugin, tuple[str, ...]], ...]] = {}
    for plugin in plugins():
        for name, texts in plugin.manifest.commands if plugin.manifest and not plugin.problem else ():
            found[name] = (*found.get(name, ()), (plugin, texts))
    return {name: found[name] for name in sorted(found)}


def plugin_of(spec: AlgorithmSpec) -> Plugin | None:
    """Return the plugin that a spec belongs to: its registration, or the installed plugin with its id and package. None if
    there is no such plugin."""
    for plugin, known in registered.values():
        if known is spec:
            return plugin
    packages = {_package(each) for each in (spec.config_type, spec.build)}
    own = [p for p in map(look, entries()) if p.id == spec.id and p.module.partition(".")[0] in packages]
    return own[0] if own else None


def require_usable(spec: AlgorithmSpec) -> Plugin | None:
    """Return the plugin of a spec, as `plugin_of`, so that callers need not look it up again.

    Raises:
        PluginError: the plugin is broken or does not work with this version of rlsdk.
    """
    plugin = plugin_of(spec)
    for each in (plugin, *(plugin_in(_package(part)) for part in (spec.config_type, spec.build))):
        if each is not None and each.problem is not None:
            each.require_usable()
    return plugin


def spec_of_class(kind: type) -> AlgorithmSpec | None:
    """Return the spec from the manifest of the package that defines the class `kind`.

    None if there is no manifest, or it does not name that class as its `agent`.

    Raises:
        PluginError: there is a manifest, but it cannot be used.
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
    """Import and return the agent class of a plugin; None if its spec names none.

    Raises:
        PluginError: the plugin's code fails or returns something that is not an agent class.
    """
    if spec.agent is None:
        return None
    plugin = require_usable(spec)
    # Two imports at the same time would each undo what the other changes.
    with ONE_AT_A_TIME:
        return _agent_type(spec.id, plugin, spec.agent)


@cache
def _agent_type(identity: str, plugin: Plugin | None, agent: Callable[[], type[object]]) -> type[object]:
    """Return the class that `agent` imports. It is imported once: the guard would undo what other threads change meanwhile."""
    who = identity if plugin is None else _name(plugin)
    found = _guarded(who, plugin, agent)
    if not isinstance(found, type) or getattr(found, "spec", None) is None:
        raise PluginError(f"{who} is broken: its `agent` returned {shown(found)}; return its subclass of rlsdk.Agent")
    return found


FORGET.append(_agent_type.cache_clear)


def _package(value: object) -> str:
    """Return the top-level package of a function or class."""
    module = value.module if isinstance(value, Named) else getattr(value, "__module__", "")
    return str(module).partition(".")[0]


def _call(plugin: Plugin, hook: str) -> object:
    plugin.require_usable()
    with ONE_AT_A_TIME:
        return _call_installed(plugin, hook)


@cache
def _call_installed(plugin: Plugin, hook: str) -> object:
    """Return the result of the hook `hook` of a plugin. It is cached."""
    manifest = plugin.manifest
    if hook == "algorithm" and manifest is not None and manifest.build:
        return _guarded(_name(plugin), plugin, lambda: spec_of(manifest))
    answer = _guarded(_name(plugin), plugin, lambda: _imported(plugin, hook))
    if hook == "algorithm":
        check_spec(answer, plugin)
    return answer


FORGET.extend((_call_installed.cache_clear, spec_of.cache_clear))


def _imported(plugin: Plugin, hook: str) -> object:
    # Imported here: 20 ms, and listing plugins calls no hook.
    import pluggy

    from rlsdk.registry import hooks

    # A manager for each call, so that the hook of no other plugin is called.
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    place = f"{plugin.module}:{plugin.attribute}" if plugin.attribute else plugin.module
    manager.register(EntryPoint(plugin.id, place, GROUP).load(), name=plugin.qualified_id)
    # Otherwise a misspelt hook would never be called, without a word.
    manager.check_pending()
    return getattr(manager.hook, hook)()


def _name(plugin: Plugin) -> str:
    """Return distribution, id and version of a plugin, for messages."""
    return f"{plugin.qualified_id} {plugin.version}"


def _guarded(who: str, plugin: Plugin | None, work: Callable[[], object]) -> object:
    """Call `work`, a function of a plugin, and return its result. Side effects are undone, and a warning names each.

    Raises:
        PluginError: `work` raised an exception, or it had side effects and warnings are errors in this process.
    """
    from rlsdk.registry.guard import (  # imported here: listing plugins does not need it
        PluginSideEffect,
        TookTooLong,
        in_time,
        protected,
    )

    try:
        # The time limit is inside, so that its exception passes through the code that restores the state.
        with protected(who) as effects, in_time(SECONDS):
            answer = work()
    # Ctrl-C is the user's, and errors of rlsdk have their message.
    except (KeyboardInterrupt, RlsdkError):
        raise
    except TookTooLong as error:
        raise PluginError(f"{who} is broken: importing it did not end within {SECONDS:g} s; uninstall it") from error
    except BaseException as error:  # a plugin that calls sys.exit() must not end the process
        raise PluginError(f"{who} is broken: importing it raised {described(error, plugin)}") from error
    try:
        for effect in effects:
            warnings.warn(f"plugin {who} {effect} while it was imported", PluginSideEffect, stacklevel=5)
    except PluginSideEffect as effect:
        raise PluginError(f"{effect}; warnings are errors in this process") from None
    return answer


@contextmanager
def naming_plugins() -> Iterator[None]:
    """Turn an exception that a plugin raises inside the block into one that names its package, the function and the line.

    What a command of a plugin raises to end, or about files, is left alone: those who typed the command chose the files.

    Raises:
        PluginError: code of a plugin raised the exception `__cause__`.
    """
    try:
        yield
    except (RlsdkError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        modules = [str(frame.f_globals.get("__name__")) for frame in frames]
        owners = [plugin_in(module.partition(".")[0]) for module in modules]
        owner = next(filter(None, reversed(owners)), None)
        if owner is None:
            raise
        k = max(k for k, each in enumerate(owners) if each is owner)
        # to the function that was called from elsewhere; the first frame is this function
        while owners[k - 1] is owner:
            k -= 1
        called = any(module.startswith("rlsdk.") and module != "rlsdk.cli.main" for module in modules[1:k])
        if isinstance(error, SystemExit | OSError) and not called:
            raise
        what = one_line(raised(error, frames[k].f_code.co_qualname))
        raise PluginError(f"{_name(owner)} {what}; leave it out, or report this to its authors") from error
