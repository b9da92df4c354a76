"""Checks of whether a state can be stored in a file, with errors that name the entry that cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlsdk.errors import PluginError, shown
from rlsdk.tree import unflatten

ADVICE = "state_dict() may hold tables of tensors, text, finite numbers, true, false, none and lists of these"


def require_names(node: Mapping[Any, object], place: str = "") -> None:
    """Raise PluginError if a table has a name that a file would not restore unchanged.

    Names must be text without '/'. The states of torch's optimisers may also have whole numbers as names.
    """
    numbers = node.keys() == {"state", "param_groups"}
    for name, child in node.items():
        inside = f"{place}/{name}" if place else str(name)
        if not isinstance(name, str) or not name or "/" in name:
            accepted = "names are text without '/'; rename it in state_dict()"
            raise PluginError(f"the name {shown(name)} in the state {shown(place)} cannot be stored: {accepted}")
        if not isinstance(child, Mapping):
            continue
        if numbers and name == "state":
            for number, leaf in child.items():
                if isinstance(leaf, Mapping):
                    require_names(leaf, f"{inside}/{number}")
        else:
            require_names(child, inside)


def nested_state(flat: Mapping[str, object]) -> dict[str, Any]:
    """`rlsdk.tree.unflatten`, but with whole numbers as the keys of parameters in the states of torch's optimisers.

    torch's optimisers ignore entries whose key is text.

    Raises:
        ValueError: the same name belongs to a value and to a table.
    """
    nested = unflatten(flat)
    _number_parameters(nested)
    return nested


def _number_parameters(node: dict[str, Any]) -> None:
    if node.keys() == {"state", "param_groups"} and isinstance(node["state"], dict):
        node["state"] = {int(key) if key.isdecimal() else key: value for key, value in node["state"].items()}
        return
    for child in node.values():
        if isinstance(child, dict):
            _number_parameters(child)


def as_json(section: str, values: Mapping[str, object]) -> bytes:
    """The values of a section as JSON; `values` is flat, with names joined by '/'.

    Raises:
        PluginError: JSON cannot represent a value.
    """
    for name, value in values.items():
        for key in _lost_names(value):  # JSON would write them as text
            place = shown(f"{section}/{name}")
            raise PluginError(f"the name {shown(key)} in the state {place} cannot be stored: {ADVICE}; names are text")
    try:
        return json.dumps(values, allow_nan=False).encode()
    except (TypeError, ValueError):
        for name, value in values.items():
            for found in _refused(value):
                place = shown(f"{section}/{name}")
                raise PluginError(
                    f"{found} in the state {place} cannot be stored: {ADVICE}; give one of these"
                ) from None
        raise


def _lost_names(value: object) -> Iterator[object]:
    """Yield the keys that are not text, of tables at any depth in `value`."""
    if isinstance(value, Mapping):
        yield from (key for key in value if not isinstance(key, str))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _lost_names(part)


def _refused(value: object) -> Iterator[str]:
    """Yield descriptions of the parts of `value` that JSON cannot represent, the innermost first."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        if isinstance(value, list | tuple):
            for part in value:
                yield from (f"{found} in a list" for found in _refused(part))
        yield f"the number {value}" if isinstance(error, ValueError) else f"a value of type {type(value).__name__}"
