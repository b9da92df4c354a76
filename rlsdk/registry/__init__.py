"""Finding plugins without running them, and loading one at a time. Imports no torch."""

from rlsdk.registry.capability_files import capabilities
from rlsdk.registry.discovery import (
    Plugin,
    algorithms,
    extension,
    extensions,
    find,
    load,
    plugins,
    register,
    unregister,
)
from rlsdk.registry.hooks import hookimpl, hookspec
from rlsdk.registry.manifest import Manifest
from rlsdk.registry.preset_files import Preset, preset, presets
from rlsdk.registry.spec import AlgorithmSpec, MaskUse

__all__ = [
    "AlgorithmSpec",
    "Manifest",
    "MaskUse",
    "Plugin",
    "Preset",
    "algorithms",
    "capabilities",
    "extension",
    "extensions",
    "find",
    "hookimpl",
    "hookspec",
    "load",
    "plugins",
    "preset",
    "presets",
    "register",
    "unregister",
]
