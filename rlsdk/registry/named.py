"""Functions and classes that a manifest names, as in `build = "package.build:build"`. They are imported when first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import attrs

from rlsdk.errors import PluginError, shown, suggest
from rlsdk.registry.discovery import described, plugin_in
from rlsdk.registry.manifest import Manifest
from rlsdk.registry.sdk_range import is_missing_from_sdk
from rlsdk.registry.spec import AlgorithmSpec


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
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise self._broken(f"there is no module {self.module}")

    def value(self) -> Any:
        """Import and return the function or class.

        Raises:
            PluginError: there is none of that name, or its module imports something that this SDK does not have.
        """
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
