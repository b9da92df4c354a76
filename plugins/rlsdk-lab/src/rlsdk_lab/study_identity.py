"""The options and settings that all trials of a study share. If they differ, scores are not comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

ABSENT = "nothing"


def identity(known: str) -> dict[str, Any]:
    """Return option or setting -> value, given the text that a study stores."""
    table = dict(json.loads(known))
    settings = _flat(table.pop("settings", {}), "--set ")
    return {f"--{name}": value for name, value in table.items()} | settings


def _flat(table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the values of nested tables, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def differences(known: str, wanted: str) -> str:
    """Return how a study with the identity `known` differs from `wanted`, as text; "" if it does not."""
    before, now = identity(known), identity(wanted)
    names = [name for name in {**before, **now} if before.get(name, ABSENT) != now.get(name, ABSENT)]
    return ", ".join(f"{name} {before.get(name, ABSENT)}, not {now.get(name, ABSENT)}" for name in names)
