"""What a plugin declares for the contract kit: settings of the kit's agents, bounds of clauses `learns.*`, and exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from rlsdk.errors import PluginError, shown
from rlsdk.registry import AlgorithmSpec, Named, Plugin
from rlsdk.settings import merge

EXCEPTABLE = ("batch.", "rollout.", "learns.")
"""The groups of clauses for which a plugin may declare exceptions. They describe how updates usually learn, and a correct
method may learn in another way."""


def declared_settings(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, object]:
    """Return `testing_settings` of the spec, updated by those of the manifest.

    Raises:
        PluginError: the object that the manifest names does not exist, is not a dictionary, or has an unknown setting.
    """
    given = _named(plugin, "testing_settings")
    known = [field.name for field in attrs.fields(spec.config_type)]
    if unknown := sorted(set(given) - set(known)):
        raise PluginError(
            f"testing_settings of {plugin.qualified_id} names {shown(unknown)}; the settings are {', '.join(known)}"
        )
    return merge(spec.testing_settings, given)


def declared_bounds(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, float]:
    """Return `testing_bounds` of the spec, updated by those of the manifest.

    Raises:
        PluginError: the object that the manifest names does not exist, or is not a dictionary of numbers.
    """
    given = _named(plugin, "testing_bounds")
    if wrong := {name: bound for name, bound in given.items() if not isinstance(bound, int | float)}:
        raise PluginError(f"testing_bounds of {plugin.qualified_id} has {shown(wrong)}; give a number for each toy")
    return {**spec.testing_bounds, **given}


def declared_exceptions(plugin: Plugin, spec: AlgorithmSpec[Any]) -> Mapping[str, str]:
    """Return `testing_exceptions` (clause -> why it does not hold) of the spec, updated by those of the manifest.

    Raises:
        PluginError: the object that the manifest names does not exist, an entry has no reason, or its clause is not in the
            groups `EXCEPTABLE`.
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
    """Return the dictionary that the manifest names in `field`; empty if it names none."""
    place = "" if plugin.manifest is None else getattr(plugin.manifest, field)
    if not place:
        return {}
    value = Named(plugin.id, field, place).value()
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise PluginError(f"{field} = {place!r} of {plugin.qualified_id} is {shown(value, 60)}; name a dictionary")
    return value
