"""What `rlsdk new` can write: one folder of `templates` per package, described by the `family.toml` in it.

A new folder is a new family; no code names them. In `family.toml`:

| key | meaning |
|---|---|
| `family` | the value of `--family`, and the label in the manifest |
| `for_actions` | the value of `--actions` that chooses this folder; left out where the family has no such choice |
| `summary`, `actions`, `observations`, `default_envs`, `live` | as in the manifest |
| `run` | a command that trains it |
| `example` | Python that trains it, for its README |
| `[preset]` | `env`, `steps`, `settings`: of its preset |
| `[toy]` | `env`, `kind`, `returns`, `bound`, `settings`, `steps`: what its test learns, and how well |
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import attrs

from rlsdk.errors import SettingsError, suggest

DEFAULT_ACTIONS = "discrete"


@attrs.frozen
class FamilyTemplate:
    """One folder of templates."""

    folder: Traversable
    family: str
    for_actions: str | None
    """What `--actions` chooses it; None: its family has no choice."""
    contents: Mapping[str, Any]
    """The contents of its `family.toml`."""


@cache
def family_templates() -> tuple[FamilyTemplate, ...]:
    """Every folder that describes a family, by name."""
    folders = sorted((files("rlsdk.scaffold") / "templates").iterdir(), key=lambda folder: folder.name)
    described = [(folder, folder / "family.toml") for folder in folders if folder.is_dir()]
    found = [(folder, tomllib.loads(file.read_text(encoding="utf-8"))) for folder, file in described if file.is_file()]
    return tuple(FamilyTemplate(folder, own["family"], own.get("for_actions"), own) for folder, own in found)


def families() -> tuple[str, ...]:
    """The values of `--family`."""
    return tuple(dict.fromkeys(each.family for each in family_templates()))


def family_template(family: str, actions: str | None = None) -> FamilyTemplate:
    """The folder for a family and a kind of actions (`continuous` or `discrete`; None: discrete where there is a choice).

    Raises:
        SettingsError: no such family, or no such kind of actions in it.
    """
    if family not in families():
        raise SettingsError(f"unknown family {family!r}; {suggest(family, families())}")
    choices = {each.for_actions: each for each in family_templates() if each.family == family}
    if None in choices:
        if actions is not None:
            spaces = ", ".join(choices[None].contents["actions"])
            raise SettingsError(
                f"--actions does not apply to the family {family}, whose package has {spaces} actions; leave it out"
            )
        return choices[None]
    wanted = DEFAULT_ACTIONS if actions is None else actions
    if wanted not in choices:
        known = [kind for kind in choices if kind is not None]
        raise SettingsError(f"unknown actions {wanted!r} of the family {family}; {suggest(wanted, known)}")
    return choices[wanted]
