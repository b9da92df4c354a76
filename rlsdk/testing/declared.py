"""What a plugin declares for its tests: settings of the kit's agents, bounds of the clauses `learns.*`, and exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from rlsdk.errors import PluginError, shown
from rlsdk.registry import AlgorithmSpec, Plugin
from rlsdk.registry.named import Named
from rlsdk.settings import merge

EXCEPTABLE = ("batch.", "rollout.", "learns.")
"""How ids of clauses begin that describe how an update usually learns; a correct method may do something else."""


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


def declared_exceptions(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, str]:
    """Clause -> why it does not hold for the algorithm: `testing_exceptions` of the manifest, over those of the spec.

    Raises:
        PluginError: what the manifest names is not there, or an entry is not a clause of `EXCEPTABLE` with a reason.
    """
    given: Mapping[str, object] = {**spec.testing_exceptions, **_named(plugin, "testing_exceptions")}
    reasons = {name: text for name, text in given.items() if isinstance(text, str) and text.strip()}
    if missing := sorted(set(given) - set(reasons)):
        raise PluginError(
            f"testing_exceptions of {plugin.qualified_id} gives no reason for {shown(missing)}; give a text"
        )
    if wrong := [name for name in reasons if not name.startswith(EXCEPTABLE)]:
        accepted = ", ".join(f"{group}*" for group in EXCEPTABLE)
        raise PluginError(
            f"testing_exceptions of {plugin.qualified_id} names {shown(wrong[0])}, which holds for every algorithm;"
            f" accepted: {accepted}"
        )
    return reasons


def _named(
    plugin: Plugin, field: Literal["testing_settings", "testing_bounds", "testing_exceptions"]
) -> Mapping[str, Any]:
    """The table that the manifest names in `field`; empty where it names none."""
    place = "" if plugin.manifest is None else getattr(plugin.manifest, field)
    if not place:
        return {}
    value = Named(plugin.id, field, place).value()
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise PluginError(f"{field} = {place!r} of {plugin.qualified_id} is {shown(value, 60)}; name a dictionary")
    return value
