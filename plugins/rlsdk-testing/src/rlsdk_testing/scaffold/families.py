"""The kinds of packages that `rlsdk new` can write. Each is a folder in `templates` that contains a file `family.toml`.

To add a kind, add a folder; no code lists the folders. The keys of `family.toml`:

| key | meaning |
|---|---|
| `family` | the value of `--family`, and the label in the manifest |
| `for_actions` | the value of `--actions` that chooses this folder; left out if the family has no such choice |
| `summary`, `actions`, `observations`, `default_envs`, `live` | as in the manifest |
| `requires` | packages that the new package needs too; may be left out |
| `run` | a command that trains the new algorithm |
| `example` | Python code that trains the new algorithm, for the README of the package |
| `[preset]` | `env`, `steps`, `settings`: the content of its preset |
| `[toy]` | `env`, `kind`, `returns`, `bound`, `settings`, `steps`: the task that its test learns, and the bound to reach |
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
    """The value of `--actions` that chooses this folder; None if the family has no such choice."""
    contents: Mapping[str, Any]
    """The contents of the file `family.toml` in this folder."""


@cache
def family_templates() -> tuple[FamilyTemplate, ...]:
    """Return every folder of templates that contains a `family.toml`, sorted by name."""
    folders = sorted((files("rlsdk_testing.scaffold") / "templates").iterdir(), key=lambda folder: folder.name)
    described = [(folder, folder / "family.toml") for folder in folders if folder.is_dir()]
    found = [(folder, tomllib.loads(file.read_text(encoding="utf-8"))) for folder, file in described if file.is_file()]
    return tuple(FamilyTemplate(folder, own["family"], own.get("for_actions"), own) for folder, own in found)


def families() -> tuple[str, ...]:
    """Return the values that `--family` accepts."""
    return tuple(dict.fromkeys(each.family for each in family_templates()))


def family_template(family: str, actions: str | None = None) -> FamilyTemplate:
    """Return the template for a family and a kind of actions.

    Args:
        family: one of `families()`.
        actions: `continuous` or `discrete`, for a family with a choice; None is discrete.

    Raises:
        SettingsError: there is no such family, or it has no such kind of actions.
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
