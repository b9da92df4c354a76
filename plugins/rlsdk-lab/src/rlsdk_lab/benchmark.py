"""Run a suite: every cell with every seed, several runs at the same time. A stopped bench can be continued."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from rlsdk.errors import ArtifactError, PluginError, SettingsError
from rlsdk.registry import load, preset
from rlsdk.runs import RunDirectory, RunRequest, folder_name, read_table
from rlsdk.runtime import write_json
from rlsdk.settings import data_in
from rlsdk_lab.many_runs import open_workers, run_all
from rlsdk_lab.scores import Score, score_of
from rlsdk_lab.suite import Cell, Suite

PLAN = "bench.json"
"""The file by which commands recognize the folder of a bench."""


@attrs.frozen(kw_only=True)
class Bench:
    """The plan of a bench: the cells of `suite`, each with all `seeds`, none longer than `budget` environment steps."""

    suite: Suite
    seeds: tuple[int, ...]
    out: Path
    jobs: int = 1
    budget: int | None = None
    everything: bool = False
    """Also run the cells that are marked as too large for one machine. With a budget they always run."""
    executor: str = "processes"
    trust: bool = False
    """Whether the suite may name modules to import and paths to write to."""
    sinks: tuple[str, ...] = ()
    """Names of further metric sinks of every run."""

    def cells(self) -> list[Cell]:
        """Return the cells that are run."""
        return [cell for cell in self.suite.cells if cell.measure or self.everything or self.budget]

    def steps(self, cell: Cell) -> int:
        """Return the environment steps of a run of this cell: those of `full_steps`, at most `budget`.

        Raises:
            SettingsError: as `full_steps`.
        """
        full = self.full_steps(cell)
        return full if self.budget is None else min(full, self.budget)

    @staticmethod
    def full_steps(cell: Cell) -> int:
        """Return the environment steps of this cell in the suite, else those of the preset for its environment.

        Raises:
            SettingsError: neither the suite nor a preset has a number of steps.
        """
        if cell.steps is not None:
            return cell.steps
        known = preset(cell.algorithm, cell.env)
        if known is None:
            raise SettingsError(
                f"{cell.name}: the number of steps is neither in the suite nor in a preset; add `steps`"
            )
        return known.steps


@attrs.frozen(kw_only=True)
class BenchResult:
    """The result of a bench: the scores of finished runs, and the reasons of failed ones."""

    plan: Bench
    scores: tuple[Score, ...]
    failures: tuple[tuple[Cell, int, str], ...]
    """(cell, seed, reason) of each failed run."""

    def of(self, cell: Cell) -> list[Score]:
        """Return the scores of one cell, in the order of the seeds."""
        return [score for score in self.scores if (score.algorithm, score.env) == (cell.algorithm, cell.env)]


def bench(plan: Bench) -> BenchResult:
    """Run the runs that are not finished yet. A run that fails does not stop the others.

    Raises:
        SettingsError: `out` contains something else.
        KeyboardInterrupt: runs were stopped and saved.
    """
    pairs = [(cell, seed) for seed in plan.seeds for cell in plan.cells()]
    if not plan.trust:
        _require_trusted(plan)
    names = [f"[{k} of {len(pairs)}] {cell.name}, seed {seed}" for k, (cell, seed) in enumerate(pairs, start=1)]
    folders = {name: _folder(plan, *pair) for name, pair in zip(names, pairs, strict=True)}
    with open_workers(plan.executor, plan.jobs, folders) as executor, _claim(plan):
        requests = {name: _request(plan, *pair) for name, pair in zip(names, pairs, strict=True)}
        results = run_all(requests, executor, plan.out / PLAN)
    scores = (score_of(result.folder) for result in results if result.error is None)
    failures = tuple(
        (cell, seed, result.error)
        for (cell, seed), result in zip(pairs, results, strict=True)
        if result.error is not None
    )
    return BenchResult(plan=plan, scores=tuple(score for score in scores if score is not None), failures=failures)


def _require_trusted(plan: Bench) -> None:
    """Check what the suite chooses, and the files in the folder of the bench. Raises as `RunDirectory.require_trusted`."""
    source, directory = f"suite {plan.suite.name}", RunDirectory(plan.out)
    for cell in plan.cells():
        directory.require_trusted(source, env=cell.env, settings=cell.settings)
    directory.require_trusted(source, files=[*plan.out.glob("*"), *plan.out.glob("*/*/seed-*/*")])


@contextlib.contextmanager
def _claim(plan: Bench) -> Iterator[None]:
    """Lock the folder inside the block and store the plan there, so that runs with other settings cannot be added.

    Seeds and algorithms may be added to a folder. Budgets, cells and data sets may not change.

    Raises:
        SettingsError: the folder cannot be written, is in use, or contains something else.
    """
    cells = {
        cell.name: {**attrs.asdict(cell), "steps": plan.steps(cell), "settings": _with_digests(cell)}
        for cell in plan.cells()
    }
    now = json.loads(json.dumps({"suite": plan.suite.name, "cells": cells}))
    path = plan.out / PLAN
    with RunDirectory(plan.out).created(PLAN):
        if path.exists():
            now["cells"] = {**_cells_before(path, plan, now["cells"]), **now["cells"]}
        write_json(path, now)
        yield


def _with_digests(cell: Cell) -> dict[str, object]:
    """Return the settings of a cell. Data sets are stored by digest: a file at the same path may have become another.

    Raises:
        SettingsError: a data set cannot be read.
    """
    try:
        found = data_in(load(cell.algorithm).config_type, cell.settings)
        return {**cell.settings, **{name: dataset.to_setting() for name, dataset in found.items()}}
    except PluginError:  # each run of it fails
        return cell.settings
    except (SettingsError, ArtifactError) as error:
        raise SettingsError(f"{cell.name}: {error}") from None


def _cells_before(path: Path, plan: Bench, cells: dict[str, object]) -> dict[str, object]:
    """Return the cells in the record of a folder.

    Raises:
        SettingsError: the record is damaged, or belongs to another suite or other settings.
    """
    table = read_table(path)
    suite, before = table.get("suite"), table.get("cells")
    if not isinstance(suite, str) or not isinstance(before, dict):
        raise SettingsError(f"{path} is damaged: it has no suite or no cells; restore it, or choose another --out")
    changed = [name for name in before if name in cells and before[name] != cells[name]]
    if suite != plan.suite.name or changed:
        others = "; ".join(f"{name} ({', '.join(_differences(before[name], cells[name]))})" for name in changed)
        what = f"other settings of {others}" if changed else f"another suite, {suite!r}"
        raise SettingsError(f"{plan.out} holds {what}; choose another --out, or remove it")
    return before


def _differences(before: object, now: object) -> list[str]:
    """Names of the entries of two cells that are not equal; those of `settings` without that word."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return ["damaged"]
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [n for name in names for n in (_differences(before.get(name), now[name]) if name == "settings" else [name])]


def _folder(plan: Bench, cell: Cell, seed: int) -> Path:
    return plan.out / cell.algorithm / folder_name(cell.env) / f"seed-{seed}"


def _request(plan: Bench, cell: Cell, seed: int) -> RunRequest:
    return RunRequest(
        algorithm=cell.algorithm,
        env=cell.env,
        steps=plan.steps(cell),
        settings={**cell.settings, "seed": seed},
        out=_folder(plan, cell, seed),
        eval_episodes=plan.suite.episodes,
        trust=plan.trust,
        sinks=plan.sinks or None,
        vectorization="sync" if plan.jobs > 1 else "auto",  # other runs use the cores
    )
