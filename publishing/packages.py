"""The packages of this repository, found by their pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "plugins/*", "contrib_algos/*")
"""Where packages lie; the first is the core."""


@attrs.frozen
class Package:
    """A package and the facts that its pyproject.toml states."""

    folder: Path
    project: dict[str, Any] = attrs.field(repr=False)
    """The table `project`."""
    version: str

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self.project["name"])

    @property
    def changelog(self) -> Path:
        """The CHANGELOG of the package."""
        return self.folder / "CHANGELOG.md"


def packages(root: Path = ROOT) -> list[Package]:
    """Every package below `root`, the core first.

    Raises:
        ValueError: a version file has no line `__version__ = "..."`.
    """
    found = [path for pattern in FOLDERS for path in sorted(root.glob(f"{pattern}/pyproject.toml"))]
    return [_read(path) for path in found]


def _read(path: Path) -> Package:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    source = path.parent / content["tool"]["hatch"]["version"]["path"]
    found = re.search(r'^__version__ = "(.+)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f'{source} has no line __version__ = "..."; hatchling reads the version there')
    return Package(path.parent, content["project"], found[1])
