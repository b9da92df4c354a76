"""A suite: the algorithms to run, their environments and numbers of steps, and documented results. Its file is TOML:

[suite]
description = "..."
episodes = 20              # of the final evaluation of every run

[ranges]
CartPole-v1 = [22.0, 500.0]  # returns that are normalized to 0 and 1; a cell may have its own

[[cells]]
algorithm = "trpo"
env = "CartPole-v1"
steps = 100_000            # if left out: the steps of the preset
range = [22.0, 500.0]      # instead of the one in [ranges]
documented = [500.0, 0.0]  # mean and standard deviation from `source`
source = "..."
measure = true             # false: too large for one machine; run only with --all or --budget
[cells.settings]           # replace those of the preset

The cells of a built-in suite come from the installed plugins. A plugin contains `suites/<name of the suite>.toml` next to its
manifest, with [[cells]] for its own algorithm (`algorithm` may be left out). If the file has [suite], it adds a new suite.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import cattrs

from rlsdk import algorithms
from rlsdk.cli import changed_environment
from rlsdk.errors import PluginError, SettingsError, one_line, shown, suggest
from rlsdk.registry import find
from rlsdk.settings import load_settings

COUNTS = ("steps", "episodes")
FOLDER = Path(str(files("rlsdk_lab"))) / "suite_files"


@attrs.frozen(kw_only=True)
class Cell:
    """One algorithm on one environment. The module describes the fields."""

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
        """Algorithm and environment as text for messages."""
        return f"{self.algorithm} on {self.env}"


@attrs.frozen(kw_only=True)
class Suite:
    """A named collection of cells. `episodes` is the number of episodes of the final evaluations."""

    name: str
    description: str
    cells: tuple[Cell, ...]
    episodes: int = 20

    def only(self, algorithms: tuple[str, ...]) -> Suite:
        """Return the suite with only the cells of these algorithms; () returns all cells.

        Raises:
            SettingsError: an algorithm has no cell, or is not installed.
        """
        known = sorted({cell.algorithm for cell in self.cells})
        for algorithm in algorithms:
            if algorithm not in known:
                raise SettingsError(f"suite {self.name!r} has no algorithm {algorithm!r}{_instead(algorithm, known)}")
        selected = tuple(cell for cell in self.cells if not algorithms or cell.algorithm in algorithms)
        return attrs.evolve(self, cells=selected)

    def changed(self, arguments: Iterable[str] | None, wrappers: Iterable[str] | None) -> Suite:
        """Return the suite with the arguments (each `NAME=VALUE`) and wrappers added to its environments.

        Raises:
            SettingsError: as `rlsdk.cli.changed_environment`.
        """
        if not arguments and not wrappers:
            return self
        envs = (changed_environment(cell.env, arguments, wrappers) for cell in self.cells)
        cells = tuple(attrs.evolve(cell, env=env) for cell, env in zip(self.cells, envs, strict=True))
        return attrs.evolve(self, cells=cells)


def _instead(algorithm: str, known: list[str]) -> str:
    """Return advice for an algorithm without a cell. If it is not installed, its cells are in its package."""
    try:
        find(algorithm)
    except PluginError as error:
        return f": {error}"
    return f"; {suggest(algorithm, known)}"


def suites() -> tuple[str, ...]:
    """Return the names of the suites of rlsdk and of the installed plugins, sorted."""
    return tuple(sorted({*_own_files(), *suite_files()}))


def load_suite(name: str) -> Suite:
    """Return a suite, given its name or a .toml file. A named suite has the cells of every installed plugin.

    If the file of a plugin is damaged, its cells are left out, with a warning.

    Raises:
        SettingsError: there is no suite of that name, or the file is damaged.
    """
    known, path = suites(), Path(name)
    if name in known:
        return _gathered(name)
    if path.suffix != ".toml":
        raise SettingsError(f"no suite {name!r}; {suggest(name, known)}; or give a .toml file that describes one")
    suite = _structured(path.stem, name, load_settings(path))
    if not suite.cells:
        raise SettingsError(f"suite {name} has no [[cells]]; each needs at least `algorithm` and `env`")
    return suite


def suite_files() -> dict[str, dict[str, Path]]:
    """Return name of a suite -> id of an algorithm -> file of its plugin, both sorted.

    Plugins that cannot be used, or that have the same id as another one, are left out.
    """
    found: dict[str, dict[str, Path]] = {}
    usable = [plugin for plugin in algorithms() if plugin.problem is None]
    ids = [plugin.id for plugin in usable]
    for plugin in usable:
        if ids.count(plugin.id) == 1:
            for name, path in plugin.tables("suites").items():
                found.setdefault(name, {})[plugin.id] = path
    return {name: found[name] for name in sorted(found)}


def _own_files() -> dict[str, Path]:
    """Return name -> file of the suites that rlsdk itself describes."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def _gathered(name: str) -> Suite:
    """Return the suite with the cells of all plugins. Its description is that of rlsdk, or of the first plugin that has one."""
    own = _own_files().get(name)
    header = load_settings(own) if own else {}
    cells: list[Cell] = []
    for algorithm, path in suite_files().get(name, {}).items():
        try:
            table = _with_algorithm(load_settings(path), algorithm)
            header = header or {"suite": table.get("suite", {}), "ranges": table.get("ranges", {})}
            cells += _structured(name, str(path), {"ranges": header.get("ranges", {}), **table, "suite": {}}).cells
        except SettingsError as error:
            warnings.warn(f"suite {name} runs without {algorithm}: {error}", RuntimeWarning, stacklevel=3)
    return attrs.evolve(_structured(name, name, header), cells=tuple(cells))


def _with_algorithm(table: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Return the table of a plugin's file, with the plugin's algorithm in each cell."""
    cells = table.get("cells", [])
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise SettingsError("cells is not a list of tables; write each cell as [[cells]]")
    if others := sorted({str(cell["algorithm"]) for cell in cells if cell.get("algorithm", algorithm) != algorithm}):
        raise SettingsError(f"its cells name {', '.join(others)}; a plugin may only add cells with its algorithm")
    return {**table, "cells": [{"algorithm": algorithm, **cell} for cell in cells]}


def _structured(name: str, place: str, table: Mapping[str, object]) -> Suite:
    """Return the suite `name` in a table. `place` names the file in errors."""
    if wrong := sorted(set(table) - {"suite", "ranges", "cells"}):
        raise SettingsError(f"suite {place}: unknown tables {wrong}; accepted: [suite], [ranges] and [[cells]]")
    header, ranges = table.get("suite", {}), table.get("ranges", {})
    if not isinstance(header, dict) or not isinstance(ranges, dict):
        wrong_one = "ranges" if isinstance(header, dict) else "suite"
        raise SettingsError(
            f"suite {place}: {wrong_one} = {table[wrong_one]!r} is not a table; write its name and description in [suite]"
        )
    _require_sound(header, {"name", "description", "episodes"}, f"suite {place}: [suite]")
    cells = table.get("cells")
    for number, cell in enumerate(cells if isinstance(cells, list) else [], start=1):
        _require_sound(cell, attrs.fields_dict(Cell), f"suite {place}: [[cells]] {number}")
    converter = cattrs.Converter(forbid_extra_keys=True)
    try:
        common = converter.structure(ranges, dict[str, tuple[float, float]])
        record = {"name": name, "description": "", **header, "cells": table.get("cells", [])}
        suite = converter.structure(record, Suite)
    except Exception as error:
        reasons = "; ".join(cattrs.transform_error(error, path="suite"))
        raise SettingsError(f"suite {place} is not valid: {one_line(reasons, 500)}") from None
    for what, span in [*common.items(), *((cell.name, cell.range) for cell in suite.cells)]:
        if span is not None and not (math.isfinite(sum(span)) and span[0] < span[1]):
            raise SettingsError(
                f"suite {place}: the range {list(span)} of {what} must be [low, high], the low end below the high"
            )
    names = [cell.name for cell in suite.cells]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise SettingsError(f"suite {place} has {', '.join(twice)} twice; an algorithm has one cell per environment")
    ranged = (attrs.evolve(cell, range=cell.range or common.get(cell.env)) for cell in suite.cells)
    return attrs.evolve(suite, cells=tuple(ranged))


def _require_sound(table: object, known: Iterable[str], where: str) -> None:
    """Raise SettingsError if a key of a table is unknown, or a count is not a positive whole number."""
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        if key not in known:
            raise SettingsError(f"{where} has no key {shown(key, 50)}; {suggest(key, known)}")
        if key in COUNTS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SettingsError(f"{where}: {key} = {shown(value, 50)} must be a positive whole number")
