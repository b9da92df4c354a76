"""What a plugin declares for its tests: settings of the kit's agents, and bounds of the clauses `learns.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from rlsdk.errors import PluginError, shown
from rlsdk.registry import AlgorithmSpec, Plugin
from rlsdk.registry.named import Named
from rlsdk.settings import merge


def declared_settings(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, object]:
    """`testing_settings` of the manifest, over those of the spec.

    Raises:
        PluginError: what the manifest names is not there, is not a dictionary, or has a setting that the algorithm lacks.
    """
    given = _named(plugin, "testing_settings")
    known = [field.name for field in attrs.fields(spec.config_type)]
    if unknown := sorted(set(given) - set(known)):
        raise PluginError(
            f"testing_settings of {plugin.qualified_id} names {shown(unknown)}; the settings are {', '.join(known)}"
        )
    return merge(spec.testing_settings, given)


def declared_bounds(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, float]:
    """`testing_bounds` of the manifest, over those of the spec.

    Raises:
        PluginError: what the manifest names is not there, or is not a dictionary of numbers.
    """
    given = _named(plugin, "testing_bounds")
    if wrong := {name: bound for name, bound in given.items() if not isinstance(bound, int | float)}:
        raise PluginError(f"testing_bounds of {plugin.qualified_id} has {shown(wrong)}; give a number for each toy")
    return {**spec.testing_bounds, **given}


def _named(plugin: Plugin, field: Literal["testing_settings", "testing_bounds"]) -> Mapping[str, Any]:
    """The table that the manifest names in `field`; empty where it names none."""
    place = "" if plugin.manifest is None else getattr(plugin.manifest, field)
    if not place:
        return {}
    value = Named(plugin.id, field, place).value()
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise PluginError(f"{field} = {place!r} of {plugin.qualified_id} is {shown(value, 60)}; name a dictionary")
    return value
