"""The tables of a bench as rows of text, which Markdown and HTML share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import one_line
from rlsdk_lab.benchmark import Bench, BenchResult
from rlsdk_lab.scores import means
from rlsdk_lab.statistics import estimate, improvement, iqm, mean, median
from rlsdk_lab.suite import Cell


@attrs.frozen
class Table:
    """Rows of text under a header and a `title`."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        return "\n".join(
            "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
        )


def cells(outcome: BenchResult) -> Table:
    """Return a table with a row per cell: statistics of its runs, and the documented result."""
    header = (
        "algorithm", "environment", "mean [95 % interval]", "steps", "seeds", "std", "median", "IQM",
        "time per run", "published",
    )  # fmt: skip
    rows = [_cell(outcome, cell) for cell in outcome.plan.suite.cells]
    return Table("Return of the final agents, mean over episodes", header, tuple(rows))


def _cell(outcome: BenchResult, cell: Cell) -> tuple[str, ...]:
    plan, scores = outcome.plan, outcome.of(cell)
    documented = "" if cell.documented is None else f"{cell.documented[0]:g} ± {cell.documented[1]:g}"
    note = f"{documented} ({cell.source})" if documented and cell.source else documented or cell.source
    if not scores:
        failed = any(other == cell for other, _, _ in outcome.failures)
        state = "failed, see below" if failed else "not measured"
        return cell.algorithm, cell.env, state, f"{plan.full_steps(cell):,}", "0", "", "", "", "", note
    returns = means(scores)
    return (
        cell.algorithm,
        cell.env,
        str(estimate([returns], mean)),
        _length(plan, cell),
        str(len(scores)),
        f"{returns.std():.4g}",
        f"{np.median(returns):.4g}",
        f"{float(iqm(returns)):.4g}",
        f"{np.mean([score.seconds for score in scores]):,.0f} s",
        note,
    )


def _length(plan: Bench, cell: Cell) -> str:
    """Return the steps of a cell as text, with a note if they are fewer than in the suite."""
    steps, full = plan.steps(cell), plan.full_steps(cell)
    return f"{steps:,}" if steps == full else f"{steps:,} of {full:,} (short)"


def normalized(outcome: BenchResult) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return algorithm -> environment -> normalized scores.

    Scores of 0 and 1 are the ends of the cell's range. Cells without a range are left out.
    """
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for cell in outcome.plan.suite.cells:
        if cell.range is not None and (scores := outcome.of(cell)):
            low, high = cell.range
            found.setdefault(cell.algorithm, {})[cell.env] = (means(scores) - low) / (high - low)
    return found


def comparable(outcome: BenchResult) -> tuple[dict[str, dict[str, NDArray[np.float64]]], str]:
    """Return (algorithm -> environment -> normalized scores, description) for environments that all algorithms ran on.

    If there is no such environment, return all scores of each algorithm, and a description that warns.
    """
    known = normalized(outcome)
    sets = [set(by_env) for by_env in known.values()]
    common = set.intersection(*sets) if sets else set()
    if not common:
        return known, "each algorithm on its own environments, so that rows cannot be compared"
    shared = {name: {env: tasks for env, tasks in by_env.items() if env in common} for name, by_env in known.items()}
    return shared, f"on {', '.join(sorted(common))}"


def together(outcome: BenchResult) -> Table:
    """Return a table with a row per algorithm: normalized scores over the environments that all of them ran on."""
    header = ("algorithm", "environments", "runs", "IQM", "mean", "median")
    rows = []
    known, where = comparable(outcome)
    for algorithm, by_env in known.items():
        tasks = list(by_env.values())
        numbers = [str(estimate(tasks, statistic)) for statistic in (iqm, mean, median)]
        rows.append((algorithm, ", ".join(by_env), str(sum(map(len, tasks))), *numbers))
    return Table(f"Normalized returns [95 % interval], {where}", header, tuple(rows))


def duels(outcome: BenchResult) -> Table:
    """Return a table with a row per pair of algorithms: the probability that a run of the first is better."""
    rows = []
    known = normalized(outcome)
    for a, b in combinations(known, 2):
        common = [env for env in known[a] if env in known[b]]
        if common:
            share = improvement([known[a][env] for env in common], [known[b][env] for env in common])
            rows.append((a, b, ", ".join(common), str(share)))
    header = ("X", "Y", "environments", "P(X > Y) [95 % interval]")
    return Table("Probability that a run of X is better than one of Y", header, tuple(rows))


def runs(outcome: BenchResult) -> Table:
    """Return a table with a row per run, finished or failed."""
    done = [
        (s.algorithm, s.env, str(s.seed), f"{s.steps:,}", f"{s.mean:.4g} ± {s.std:.4g}", f"{s.seconds:,.0f} s", "")
        for s in outcome.scores
    ]
    failed = [(c.algorithm, c.env, str(seed), "", "", "", reason) for c, seed, reason in outcome.failures]
    header = ("algorithm", "environment", "seed", "steps", "mean ± std over episodes", "time", "what went wrong")
    return Table("Every run", header, (*done, *failed))


def all_tables(outcome: BenchResult) -> Sequence[Table]:
    """Return the tables that are not empty."""
    return [table for table in (cells(outcome), together(outcome), duels(outcome), runs(outcome)) if table.rows]
