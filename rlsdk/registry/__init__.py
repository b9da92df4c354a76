"""Finding plugins without running their code, and loading one plugin at a time. Importing this package imports no torch.

The names of this package are imported when they are first used. Listing algorithms thus skips settings and hooks, whose
import would take a third of its time. `HOMES` has the names for users. The rest of rlsdk imports other names from their
modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.registry.discovery import Plugin as Plugin
    from rlsdk.registry.discovery import algorithms as algorithms
    from rlsdk.registry.discovery import find as find
    from rlsdk.registry.discovery import plugins as plugins
    from rlsdk.registry.discovery import register as register
    from rlsdk.registry.discovery import unregister as unregister
    from rlsdk.registry.guard import PluginSideEffect as PluginSideEffect
    from rlsdk.registry.hooks import hookimpl as hookimpl
    from rlsdk.registry.loading import Named as Named
    from rlsdk.registry.loading import extension as extension
    from rlsdk.registry.loading import extensions as extensions
    from rlsdk.registry.loading import extensions_of as extensions_of
    from rlsdk.registry.loading import load as load
    from rlsdk.registry.manifest import HOOKS as HOOKS
    from rlsdk.registry.manifest import AlgorithmSpec as AlgorithmSpec
    from rlsdk.registry.manifest import Manifest as Manifest
    from rlsdk.registry.package_names import public_names as public_names
    from rlsdk.registry.packaged_files import Preset as Preset
    from rlsdk.registry.packaged_files import capabilities as capabilities
    from rlsdk.registry.packaged_files import capabilities_file as capabilities_file
    from rlsdk.registry.packaged_files import preset as preset
    from rlsdk.registry.packaged_files import preset_names as preset_names
    from rlsdk.registry.packaged_files import presets as presets

HOMES = {
    **dict.fromkeys(("Plugin", "algorithms", "find", "plugins", "register"), "rlsdk.registry.discovery"),
    "unregister": "rlsdk.registry.discovery",
    "PluginSideEffect": "rlsdk.registry.guard",
    "hookimpl": "rlsdk.registry.hooks",
    **dict.fromkeys(("Named", "extension", "extensions", "extensions_of", "load"), "rlsdk.registry.loading"),
    **dict.fromkeys(("HOOKS", "AlgorithmSpec", "Manifest"), "rlsdk.registry.manifest"),
    "public_names": "rlsdk.registry.package_names",
    **dict.fromkeys(("Preset", "capabilities", "capabilities_file", "preset"), "rlsdk.registry.packaged_files"),
    **dict.fromkeys(("preset_names", "presets"), "rlsdk.registry.packaged_files"),
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
