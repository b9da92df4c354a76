"""The public names of a plugin's package. The manifest lists them, and they are imported when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

from rlsdk.errors import PluginError
from rlsdk.registry.discovery import described, is_missing_from_sdk, plugin_in, unusable
from rlsdk.registry.manifest import Manifest, read_manifest
from rlsdk.settings.agent_config import PolicyName


def public_names(package: str, **more: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) for the `__init__` of a plugin.

    With them, importing the package imports none of its modules.
    The public names are the class that the manifest names as `agent`, its `policy_classes`, the names in `more`
    (name -> module) and `__version__`. `from package import *` imports these names.
    """

    def homes() -> dict[str, str]:
        module, _, name = _manifest(package).agent.partition(":")
        return {**({name: module} if name else {}), **more}

    def get(name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise _missing(package, name)
        if name == "__all__":
            return [*sorted({*homes(), *_classes(package)}), "__version__"]
        if name in homes():
            value = _imported(package, homes()[name], name)
        elif name in _classes(package):
            value = PolicyName(_classes(package)[name])
        else:
            raise _missing(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes(), *_classes(package)})

    return get, names


def _imported(package: str, module: str, name: str) -> object:
    """Import `name` from a module of a plugin's package.

    Raises:
        PluginError: the plugin has a problem, or it imports something that this version of rlsdk does not have.
    """
    plugin = plugin_in(package.partition(".")[0])
    if plugin is not None and plugin.problem is not None:
        raise unusable(plugin)
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ImportError) as error:
        if plugin is None or not is_missing_from_sdk(error):
            raise
        cause = described(error, plugin)
        raise PluginError(f"{plugin.qualified_id} {plugin.version} is broken: importing it raised {cause}") from error


def policy_names(module: str) -> tuple[Callable[[str], PolicyName], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) for a plugin's module `policies`.

    Its names are the policies and policy classes in the manifest.
    """

    def get(name: str) -> PolicyName:
        known = _policies(module)
        if name not in known:
            raise _missing(module, name)
        return PolicyName(known[name])

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *_policies(module)})

    return get, names


def _missing(module: str, name: str) -> AttributeError:
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])


@cache
def _manifest(module: str) -> Manifest:
    return read_manifest(module)


def _classes(module: str) -> dict[str, str]:
    return dict(_manifest(module).policy_classes)


def _policies(module: str) -> dict[str, str]:
    """Return name -> policy, for the policies in the manifest and for the names of its policy classes."""
    return {**{name: name for name in _manifest(module).policies}, **_classes(module)}
