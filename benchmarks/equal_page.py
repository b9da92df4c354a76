"""The page of `python -m benchmarks.equal_learning`: its statistics, its table and its picture.

Welch's test compares the means of both sides without assuming equal variances. Two one-sided tests (Schuirmann 1987) show
equality: the difference is significantly above -margin and below +margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.equal_learning import COUPLED, DATA, SIDES, Curves, Task, rows, stored, tasks
from benchmarks.equal_run import POINTS
from benchmarks.marked import write_table
from rlsdk_lab.plotting import new_figure, save_figure

PAGE = DATA.with_suffix(".md")
PICTURE = DATA.parent / "images" / "equal-learning.svg"
MARKS = ("<!-- measured by python -m benchmarks.equal_learning -->", "<!-- end of equal learning -->")
SAME_NUMBERS = "With the random numbers of the peer:"
LEVEL = 0.05
"""The level of all tests."""
COLUMNS = (
    *("algorithm", "environment", "verdict", "runs", "steps", "margin"),
    *("whole training: rlsdk", "sb3", "difference", "last tenth: rlsdk", "sb3", "difference"),
)
COUPLED_COLUMNS = (
    "algorithm",
    "environment",
    "verdict",
    "runs",
    "margin",
    "whole training: difference",
    "last tenth: difference",
)
EQUAL, LOWER, HIGHER, OPEN, NONE = "equal", "rlsdk lower", "rlsdk higher", "undecided", "not measured yet"
SO_FAR = " so far"
"""Added to verdicts from fewer runs than planned."""
DRAWN = 3
"""The number of runs of each side from which a task is drawn: with two, an interval is larger than the returns."""
COLORS = {"ours": "#0072b2", "peer": "#d55e00"}
NAMES = {"ours": "rlsdk", "peer": "stable-baselines3, sb3-contrib"}


@dataclass(frozen=True)
class Comparison:
    """The comparison of two samples."""

    ours: float
    """The mean of rlsdk."""
    peer: float
    difference: float
    low: float
    """The lower end of the 95 % interval of the difference."""
    high: float
    chance: float
    """The two-sided p-value of Welch's test."""
    equality: float
    """The p-value of the two one-sided tests: below `LEVEL`, the means differ by less than the margin."""


def compare(ours: ArrayLike, peer: ArrayLike, margin: float) -> Comparison:
    """Compare two independent samples of at least two values each.

    Args:
        ours: the values of rlsdk, [n].
        peer: the values of the peer, [m].
        margin: the largest difference that counts as equal.
    """
    from scipy.stats import t

    x, y = np.asarray(ours, np.float64), np.asarray(peer, np.float64)
    difference = float(x.mean() - y.mean())
    parts = np.array([x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)])
    # two samples without any variance: a difference in the smallest float is certain
    error = max(float(np.sqrt(parts.sum())), np.finfo(float).tiny)
    weights = parts**2 / np.array([len(x) - 1, len(y) - 1])
    freedom = float(parts.sum() ** 2 / weights.sum()) if weights.sum() > 0 else float(len(x) + len(y) - 2)
    half = float(t.ppf(1 - LEVEL / 2, freedom)) * error
    with np.errstate(over="ignore"):  # infinitely many such errors
        chance = float(2 * t.sf(abs(difference) / error, freedom))
        equality = float(t.sf((margin - abs(difference)) / error, freedom))
    return Comparison(
        float(x.mean()), float(y.mean()), difference, difference - half, difference + half, chance, equality
    )


def measures(curves: Mapping[int, Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each run, (the mean of its curve, the mean of the last tenth of its curve)."""
    values = np.array([curves[run] for run in sorted(curves)])
    return values.mean(axis=1), values[:, -POINTS // 10 :].mean(axis=1)


def comparisons(task: Task, sides: Mapping[str, Mapping[int, Sequence[float]]]) -> tuple[Comparison, Comparison] | None:
    """The comparisons of the whole training and of its last tenth; None if a side has fewer than two runs."""
    if min(len(sides[side]) for side in SIDES) < 2:
        return None
    (ours, ours_end), (peer, peer_end) = (measures(sides[side]) for side in SIDES)
    return compare(ours, peer, task.allowed), compare(ours_end, peer_end, task.allowed)


def significant(chances: Sequence[float]) -> list[bool]:
    """Which of several tests are significant together (Holm 1979: the error rate of all of them is at most `LEVEL`)."""
    found, order = [False] * len(chances), np.argsort(chances)
    for passed, i in enumerate(order):
        if chances[i] > LEVEL / (len(chances) - passed):
            break
        found[i] = True
    return found


def verdict(pair: tuple[Comparison, Comparison], differs: Sequence[bool]) -> str:
    """The verdict over both measures. `differs`: whether the differences are significant."""
    signs = {HIGHER if each.difference > 0 else LOWER for each, other in zip(pair, differs, strict=True) if other}
    if all(each.equality < LEVEL for each in pair):
        return ", but ".join([EQUAL, *sorted(signs)])
    return " and ".join(sorted(signs)) or OPEN


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _cells(found: Comparison) -> list[str]:
    interval = f"[{_number(found.low)} .. {_number(found.high)}]"
    return [_number(found.ours), _number(found.peer), f"{_number(found.difference)} {interval}"]


def table(known: Mapping[str, Task], curves: Curves) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    pairs = {name: comparisons(task, curves[name]) for name, task in known.items()}
    differ = iter(significant([each.chance for pair in pairs.values() if pair for each in pair]))
    for name, task in known.items():
        pair = pairs[name]
        counts = ", ".join(str(len(curves[name][side])) for side in SIDES)
        soon = min(len(curves[name][side]) for side in SIDES) < task.seeds
        shown = verdict(pair, [next(differ), next(differ)]) + SO_FAR * soon if pair else NONE
        cells = [cell for each in pair for cell in _cells(each)] if pair else [""] * 6
        runs = counts if counts == f"{task.seeds}, {task.seeds}" else f"{counts} of {task.seeds}"
        head = [f"`{task.algorithm}`", task.env.removeprefix("rlsdk/"), shown, runs]
        yield f"| {' | '.join([*head, f'{task.steps:,}', _number(task.allowed), *cells])} |"


def coupled_table(known: Mapping[str, Task], curves: Curves) -> Iterator[str]:
    """Yield the lines of the table of runs with the same random numbers on both sides."""
    pairs = {}
    for name, task in known.items():
        sides = curves[name]
        if len(both := sorted(set(sides[COUPLED]) & set(sides["peer"]))) > 1:
            own, others = (measures({run: sides[side][run] for run in both}) for side in (COUPLED, "peer"))
            # with zeros as the other sample, Welch's test is that of paired runs
            whole, end = (compare(x - y, np.zeros(len(both)), task.allowed) for x, y in zip(own, others, strict=True))
            pairs[name] = (len(both), (whole, end))
    differ = iter(significant([each.chance for _, pair in pairs.values() for each in pair]))
    yield f"| {' | '.join(COUPLED_COLUMNS)} |"
    yield "|---" * len(COUPLED_COLUMNS) + "|"
    for name, (count, pair) in pairs.items():
        task = known[name]
        shown = verdict(pair, [next(differ), next(differ)])
        cells = [f"`{task.algorithm}`", task.env, shown, str(count), _number(task.allowed)]
        yield f"| {' | '.join([*cells, *(_cells(each)[2] for each in pair)])} |"


def measured() -> str:
    """The dates and versions of the stored results, and the tables."""
    known = tasks()
    curves, results = stored(known), rows()
    dates = sorted({row["date"] for row in results})
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "not yet"
    pairs = sum(comparisons(task, curves[name]) is not None for name, task in known.items())
    versions = "; ".join(sorted({row["versions"] for row in results}))
    about = f"Measured {when}: {versions}. {pairs} of {len(known)} tasks, {2 * pairs} comparisons."
    picture = f"![Training returns of both libraries over environment steps](images/{PICTURE.name})"
    return "\n".join(
        [about, "", *table(known, curves), "", picture, "", SAME_NUMBERS, "", *coupled_table(known, curves)]
    )


def drawn(known: Mapping[str, Task], curves: Curves) -> list[str]:
    """The names of the tasks with enough runs of each side."""
    return [name for name in known if min(len(curves[name][side]) for side in SIDES) >= DRAWN]


def caption(known: Mapping[str, Task], curves: Curves) -> str:
    """The description of the picture: every task with its runs and where both curves end."""
    texts = []
    for name in drawn(known, curves):
        ends = {side: float(np.mean([points[-1] for points in curves[name][side].values()])) for side in SIDES}
        counts = " and ".join(str(len(curves[name][side])) for side in SIDES)
        texts.append(f"{name} ({counts} runs) {_number(ends['ours'])} and {_number(ends['peer'])}")
    return f"Mean training return with 95 % interval; rlsdk and the peer end at: {'; '.join(texts)}"


def draw() -> None:
    """Write the picture: one panel per task."""
    from scipy.stats import t

    known = tasks()
    curves = stored(known)
    shown = drawn(known, curves)
    lines = -(-len(shown) // 3)
    figure = new_figure(lines, 3, size=(10.0, 2.6 * lines + 0.4))
    for axes, name in zip(figure.axes, shown, strict=False):
        for side in SIDES:
            values = np.array(list(curves[name][side].values()))
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
            half = t.ppf(1 - LEVEL / 2, len(values) - 1) * error
            steps = (np.arange(POINTS) + 0.5) * known[name].steps / POINTS
            axes.plot(steps, mean, color=COLORS[side], label=NAMES[side], linewidth=1.2)
            axes.fill_between(steps, mean - half, mean + half, color=COLORS[side], alpha=0.2, linewidth=0)
        axes.set_title(f"{known[name].algorithm}, {known[name].env.removeprefix('rlsdk/')}", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.locator_params(nbins=5)
        axes.xaxis.set_major_formatter(lambda number, _: f"{number:,.0f}")
    for axes in figure.axes[len(shown) :]:
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    save_figure(figure, PICTURE, caption(known, curves))


def write() -> None:
    """Write the table of the page and the picture.

    Raises:
        SystemExit: nothing is measured.
    """
    if not rows():
        raise SystemExit("nothing is measured; run python -m benchmarks.equal_learning")
    write_table(PAGE, MARKS, measured())
    draw()
