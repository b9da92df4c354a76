"""Warns of settings that have no effect because of the values of other settings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import cast

import attrs

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.settings.fields import MEMORY
from rlsdk.tree import leaves


def warn_of_unused_settings(agent: AssembledAgent) -> None:
    """Warn of each changed setting that has no effect, because the setting or recurrent policy that it `needs` is missing."""
    remembers = bool(leaves(agent.parts.policy.initial_carry(1)))
    for name, needs in _changed(agent.config):
        if needs == MEMORY and not remembers:
            what = f"the policy {agent.config.policy!r} has no memory; choose one with a memory, or leave it out"
        elif needs != MEMORY and not getattr(agent.config, needs, True):
            what = f"it needs {needs} = true; set that too, or leave it out"
        else:
            continue
        warnings.warn(f"{name} has no effect: {what}", stacklevel=5)


def _changed(config: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, needed setting or `MEMORY`) for the settings with `needs` that differ from their defaults."""
    for field in attrs.fields(cast("type[attrs.AttrsInstance]", type(config))):
        value, default = getattr(config, field.name), field.default
        if attrs.has(type(value)):
            yield from _changed(value, f"{prefix}{field.name}.")
        elif needs := field.metadata.get("needs"):
            usual = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
            if value != usual:
                yield f"{prefix}{field.name}", needs
