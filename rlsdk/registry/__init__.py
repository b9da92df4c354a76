"""Finding plugins without running them, and loading one at a time. Imports no torch."""

from rlsdk.registry.capability_files import capabilities
from rlsdk.registry.discovery import Plugin, algorithms, find, plugins, register, unregister
from rlsdk.registry.hooks import hookimpl, hookspec
from rlsdk.registry.loading import agent_type, extension, extensions, load, plugin_of, require_usable, spec_of_class
from rlsdk.registry.manifest import Manifest
from rlsdk.registry.package_names import policy_names, public_names
from rlsdk.registry.preset_files import Preset, named_preset, preset, preset_names, presets
from rlsdk.registry.spec import AlgorithmSpec, MaskUse
from rlsdk.registry.suite_files import suite_files

__all__ = [
    "AlgorithmSpec",
    "Manifest",
    "MaskUse",
    "Plugin",
    "Preset",
    "agent_type",
    "algorithms",
    "capabilities",
    "extension",
    "extensions",
    "find",
    "hookimpl",
    "hookspec",
    "load",
    "plugin_of",
    "plugins",
    "policy_names",
    "named_preset",
    "preset",
    "preset_names",
    "presets",
    "public_names",
    "register",
    "require_usable",
    "spec_of_class",
    "suite_files",
    "unregister",
]
