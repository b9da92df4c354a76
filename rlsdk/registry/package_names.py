"""The public names of a plugin's package. The manifest lists them, and they are imported when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

from rlsdk.registry.discovery import described, is_missing_from_sdk, plugin_in
from rlsdk.registry.manifest import Manifest, read_manifest
from rlsdk.settings.agent_config import PolicyName


def public_names(module: str, **more: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) for the `__init__` of a plugin, and for its module `policies`.

    With them, importing the package imports none of its modules.
    The public names are the class that the manifest names as `agent`, its `policy_classes`, the names in `more`
    (name -> module) and `__version__`. `from package import *` imports these names. Those of the module `policies` are the
    policies and the policy classes in the manifest.
    """
    is_package = "." not in module

    def homes() -> dict[str, str]:
        home, _, name = _manifest(module).agent.partition(":")
        return {**({name: home} if name and is_package else {}), **more}

    def policies() -> dict[str, str]:
        manifest = _manifest(module)
        return {**({} if is_package else {name: name for name in manifest.policies}), **dict(manifest.policy_classes)}

    def get(name: str) -> object:
        if name == "__all__" and is_package:
            return [*sorted({*homes(), *policies()}), "__version__"]
        if name.startswith("__") or name not in {**homes(), **policies()}:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        value = _imported(module, homes()[name], name) if name in homes() else PolicyName(policies()[name])
        # Python then finds the name by itself, and does not call this function again.
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes(), *policies()})

    return get, names


def _imported(package: str, module: str, name: str) -> object:
    """Import `name` from a module of a plugin's package.

    Raises:
        PluginError: the plugin has a problem, or it imports something that this version of rlsdk does not have.
    """
    plugin = plugin_in(package.partition(".")[0])
    if plugin is not None:
        plugin.require_usable()
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ImportError) as error:
        if plugin is None or not is_missing_from_sdk(error):
            raise
        raise plugin.broken(f"importing it raised {described(error, plugin)}") from error


@cache
def _manifest(module: str) -> Manifest:
    return read_manifest(module)
