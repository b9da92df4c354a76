"""A suite: which algorithms are run on which environments, for how long, and what is documented of them elsewhere.

[suite]
description = "..."
episodes = 20              # of the evaluation every run ends with

[[cells]]
algorithm = "trpo"
env = "CartPole-v1"
steps = 100_000            # left out: the preset's
range = [22.0, 500.0]      # returns that count as 0 and as 1 where environments are put together
documented = [500.0, 0.0]  # mean and deviation; source names the place
source = "..."
measure = true             # false: too large for one machine, run only with --all
[cells.settings]           # over the preset's
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import cattrs

from rlsdk.errors import SettingsError, suggest
from rlsdk.settings import load_settings

FOLDER = Path(str(files("rlsdk.experiments"))) / "suite_files"


@attrs.frozen(kw_only=True)
class Cell:
    """One algorithm on one environment."""

    algorithm: str
    env: str
    steps: int | None = None
    range: tuple[float, float] | None = None
    documented: tuple[float, float] | None = None
    source: str = ""
    measure: bool = True
    settings: dict[str, Any] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.algorithm} on {self.env}"


@attrs.frozen(kw_only=True)
class Suite:
    """Cells under a name."""

    name: str
    description: str
    cells: tuple[Cell, ...]
    episodes: int = 20

    def only(self, algorithms: tuple[str, ...]) -> Suite:
        """The cells of these algorithms; () leaves all.

        Raises:
            SettingsError: an algorithm that has no cell.
        """
        known = sorted({cell.algorithm for cell in self.cells})
        for algorithm in algorithms:
            if algorithm not in known:
                raise SettingsError(f"suite {self.name!r} has no algorithm {algorithm!r}; {suggest(algorithm, known)}")
        selected = tuple(cell for cell in self.cells if not algorithms or cell.algorithm in algorithms)
        return attrs.evolve(self, cells=selected)


def suites() -> dict[str, Path]:
    """The suites that are shipped, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load_suite(name: str) -> Suite:
    """A suite that is shipped, or one in a file.

    Raises:
        SettingsError: there is none of that name, or the file is damaged.
    """
    known, path = suites(), Path(name)
    if name not in known and path.suffix != ".toml":
        raise SettingsError(f"no suite {name!r}; {suggest(name, known)}; or give a .toml file that describes one")
    data = load_settings(known.get(name, path))
    if wrong := sorted(set(data) - {"suite", "cells"}):
        raise SettingsError(f"suite {name}: unknown tables {wrong}; accepted: [suite] and [[cells]]")
    converter = cattrs.Converter(forbid_extra_keys=True)
    header = data.get("suite", {})
    if not isinstance(header, dict):
        raise SettingsError(
            f"suite {name}: suite = {header!r} is not a table; write its name and description in [suite]"
        )
    record = {"name": path.stem, "description": "", **header, "cells": data.get("cells", [])}
    try:
        suite = converter.structure(record, Suite)
    except Exception as error:
        reasons = "; ".join(cattrs.transform_error(error, path="suite"))
        raise SettingsError(f"suite {name} is not valid: {reasons}") from None
    if not suite.cells:
        raise SettingsError(f"suite {name} has no [[cells]]; each needs at least `algorithm` and `env`")
    names = [cell.name for cell in suite.cells]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise SettingsError(f"suite {name} has {', '.join(twice)} twice; an algorithm has one cell per environment")
    return suite
