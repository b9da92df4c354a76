"""What the trials of one study have in common: with other values their scores are not comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORMER = ("algorithm", "env", "steps", "settings", "n-envs")
"""What studies hold that were begun before their identity was a table, in this order."""
ABSENT = "nothing"


def identity(known: str) -> dict[str, Any]:
    """The option or setting that trials share -> its value, from the text that a study holds."""
    stored = json.loads(known)
    table = dict(zip(FORMER, stored, strict=False)) if isinstance(stored, list) else dict(stored)
    settings = _flat(table.pop("settings", {}), "--set ")
    return {f"--{name}": value for name, value in table.items()} | settings


def _flat(table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values of nested tables, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def differences(known: str, wanted: str) -> str:
    """How a study that holds `known` differs from `wanted`, for people; "" where it does not. What a former
    study did not note is not compared."""
    before, now = identity(known), identity(wanted)
    if isinstance(json.loads(known), list):
        now = {name: value for name, value in now.items() if name in before or name.startswith("--set ")}
    names = [name for name in {**before, **now} if before.get(name, ABSENT) != now.get(name, ABSENT)]
    return ", ".join(f"{name} {before.get(name, ABSENT)}, not {now.get(name, ABSENT)}" for name in names)
