"""Benchmark suites: statistics against hand-computed values and scipy, resuming, reports, comparisons."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, trim_mean
from typer.testing import CliRunner

import rlsdk
from rlsdk.cli.main import app
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.registry import load, preset
from rlsdk.registry.discovery import algorithms
from rlsdk.settings.load import data_settings
from rlsdk_lab import Bench, Cell, Suite, bench, compare, load_suite, scores_below, suites
from rlsdk_lab.report import write_report
from rlsdk_lab.report_tables import all_tables, cells, normalized
from rlsdk_lab.scores import Score
from rlsdk_lab.statistics import (
    better,
    chance,
    difference,
    estimate,
    improvement,
    iqm,
    mean,
    median,
    profile,
    summarize,
)
from tests.tables import in_one_test

values = st.lists(st.floats(-1e3, 1e3, allow_nan=False), min_size=1, max_size=12)


def array(*numbers: float) -> Any:
    return np.asarray(numbers, dtype=np.float64)


# --- statistics ------------------------------------------------------------------------------------------------------


def test_the_interquartile_mean_by_hand() -> None:
    assert iqm(array(100, 1, 2, 3, 4, 5, 6, -100)) == 3.5  # two of eight values are dropped at each end
    assert iqm(array(0, 1, 10)) == pytest.approx(11 / 3)  # a quarter of three values is less than one


@given(values)
def test_the_interquartile_mean_is_scipys(sample: list[float]) -> None:
    assert iqm(array(*sample)) == pytest.approx(trim_mean(sample, 0.25), abs=1e-9)


def test_statistics_of_returns() -> None:
    values = np.random.default_rng(1).normal(10.0, 3.0, 40)
    numbers = summarize(values.tolist())
    assert (numbers.count, numbers.confidence) == (40, 0.95)
    assert numbers.mean == pytest.approx(values.mean())
    assert numbers.std == pytest.approx(values.std())
    assert numbers.median == pytest.approx(np.median(values))
    assert numbers.iqm == pytest.approx(np.sort(values)[10:30].mean())
    low, high = numbers.interval  # type: ignore[misc]
    t = scipy.stats.t.interval(0.95, 39, values.mean(), scipy.stats.sem(values))
    assert low == pytest.approx(t[0], abs=0.25)
    assert high == pytest.approx(t[1], abs=0.25)
    assert summarize(values.tolist()) == numbers
    wide = summarize(values.tolist(), 0.99).interval
    assert wide is not None
    assert wide[0] < low < high < wide[1]
    assert summarize([5.0]).interval is None
    assert summarize([5.0, 5.0]).interval == (5.0, 5.0)
    with pytest.raises(SettingsError, match="between 0 and 1"):
        summarize([1.0, 2.0], 95.0)
    with pytest.raises(SettingsError, match="no values"):
        summarize([])


@given(values, values)
def test_who_is_better_is_the_mann_whitney_statistic(x: list[float], y: list[float]) -> None:
    expected = mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert better(array(*x), array(*y)) == pytest.approx(expected)


def test_improvement_by_hand() -> None:
    """The first algorithm is better in 3 of 4 pairs on the first task; on the second, better in one pair, equal in one."""
    found = improvement([array(2, 4), array(5)], [array(1, 3), array(4, 5)])
    assert found.value == pytest.approx((0.75 + 0.75) / 2)
    assert found.low <= found.value <= found.high
    assert improvement([array(1, 2)], [array(3, 4)]).high == 0.0


def test_a_profile_by_hand() -> None:
    """One of two runs of the first task is above 0.5, and the only run of the second: the mean share is 0.75."""
    shares, low, high = profile([array(0.2, 0.8), array(0.6)], array(0.0, 0.5, 0.7, 0.9))
    assert shares.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert (low <= shares).all()
    assert (shares <= high).all()


@settings(max_examples=20)
@given(st.lists(values, min_size=1, max_size=4), st.sampled_from([mean, median, iqm]))
def test_intervals_hold_the_samples_and_repeat(tasks: list[list[float]], statistic: Any) -> None:
    scores = [array(*task) for task in tasks]
    found = estimate(scores, statistic)
    everything = np.concatenate(scores)
    assert everything.min() - 1e-6 <= found.low <= found.high <= everything.max() + 1e-6
    assert estimate(scores, statistic) == found


def test_the_bootstrap_is_stratified() -> None:
    """Runs are resampled within their task. If all runs of each task have one score, the interval has width 0."""
    found = estimate([array(0, 0, 0), array(1, 1, 1)], mean)
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


def test_the_interval_of_a_mean_covers_it() -> None:
    """For 300 samples of 10 normal values, the bootstrap interval contains the true mean in about 90 % of cases.

    Percentile intervals of so few values are known to cover slightly less than 95 %."""
    rng = np.random.default_rng(0)
    found = [estimate([rng.normal(3.0, 2.0, 10)], mean) for _ in range(300)]
    assert 0.85 <= np.mean([one.low <= 3.0 <= one.high for one in found]) <= 0.97
    both = [difference(rng.normal(1.0, 1.0, 10), rng.normal(0.0, 1.0, 10)) for _ in range(300)]
    assert 0.85 <= np.mean([one.low <= 1.0 <= one.high for one in both]) <= 0.97


def test_scores_must_be_there_and_finite() -> None:
    for wrong in ([], [array()], [array(1.0, np.nan)]):
        with pytest.raises(SettingsError):
            estimate(wrong, mean)
    with pytest.raises(SettingsError, match="same ones"):
        improvement([array(1.0)], [array(1.0), array(2.0)])


# --- suites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(suites()))
def test_shipped_suites_are_sound(name: str) -> None:
    suite = load_suite(name)
    assert suite.description
    for cell in suite.cells:
        known = preset(cell.algorithm, cell.env)
        config = {**(known.settings if known else {}), "buffer_size": 1000, **cell.settings}
        names = {field.name for field in attrs.fields(load(cell.algorithm).config_type)}
        try:
            rlsdk.make(cell.algorithm, env=cell.env, **{k: v for k, v in config.items() if k in names})
        except EnvironmentFault as error:  # Box2D is not a requirement of the tests
            if "box2d" not in str(error).lower():
                raise
        assert Bench.full_steps(cell) > 0
        assert cell.range is None or cell.range[0] < cell.range[1]


CELL = "[[cells]]\nalgorithm = 'ars'\nenv = 'X'\n"


@in_one_test
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no \\[\\[cells\\]\\]"),
        ("[[cells]]\nalgorithm = 'ars'\n", "env"),
        (f"{CELL}step = 3\n", r"mine.toml: \[\[cells\]\] 1 has no key 'step'; did you mean 'steps'\?$"),
        (
            f"{CELL}zzz = 3\n",
            "no key 'zzz'; accepted: algorithm, documented, env, measure, range, settings, source, steps$",
        ),
        (f"[suite]\nepisode = 3\n{CELL}", r"\[suite\] has no key 'episode'; did you mean 'episodes'\?$"),
        (f"[suite]\ncells = 3\n{CELL}", r"\[suite\] has no key 'cells'; accepted: description, episodes, name$"),
        (f"{CELL}steps = -3\n", r"cells.. 1: steps = -3 must be a positive whole number"),
        (f"{CELL}steps = 2.5\n", r"steps = 2.5 must be a positive whole number"),
        (f"[suite]\nepisodes = 0\n{CELL}", "episodes = 0 must be a positive whole number"),
        ("[[cells]]\nalgorithm = 'ars'\nenv = 'X'\n[[cells]]\nalgorithm = 'ars'\nenv = 'X'\n", "twice"),
        ("[cell]\n", "unknown tables"),
        ("[[", "TOML"),
    ],
)
def test_damaged_suites_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_suite(str(path))


def test_plugins_add_cells_to_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, damaged, foreign = tmp_path / "mine.toml", tmp_path / "damaged.toml", tmp_path / "foreign.toml"
    mine.write_text("[suite]\ndescription = 'New.'\nepisodes = 3\n[[cells]]\nenv = 'CartPole-v1'\nsteps = 5\n")
    damaged.write_text("[[cells]]\nenvironment = 'CartPole-v1'\n")
    foreign.write_text("[[cells]]\nalgorithm = 'ars'\nenv = 'CartPole-v1'\n")
    found = {"classic": {"mine": mine, "b": damaged, "c": foreign}, "new": {"mine": mine}}
    monkeypatch.setattr("rlsdk_lab.suite.suite_files", lambda: found)

    assert {"classic", "new"} < set(suites())
    new = load_suite("new")
    assert (new.description, new.episodes, new.cells) == (
        "New.",
        3,
        (Cell(algorithm="mine", env="CartPole-v1", steps=5),),
    )
    with pytest.warns(RuntimeWarning, match="classic runs without") as caught:
        classic = load_suite("classic")
    assert [cell.algorithm for cell in classic.cells] == ["mine"]
    assert classic.cells[0].range == (24.5, 500.0), "the range of the environment is that of the suite"
    assert classic.description != "New.", "a plugin does not replace the description of a suite of rlsdk"
    assert any("without b" in str(w.message) and "environment" in str(w.message) for w in caught)
    assert any(
        "without c" in str(w.message) and "may only add cells with its algorithm" in str(w.message) for w in caught
    )


def test_every_package_is_in_a_suite() -> None:
    """Every algorithm is in a suite, except those that learn from a data set, which suites do not have."""
    cells = {cell.algorithm for name in suites() for cell in load_suite(name).cells}
    ours = {plugin.id for plugin in algorithms() if plugin.module.startswith("rlsdk_")}
    assert cells == {name for name in ours if not data_settings(load(name).config_type)}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SettingsError, match="did you mean 'classic'"):
        load_suite("clasic")
    with pytest.raises(SettingsError, match="did you mean 'qrdqn'"):
        load_suite("classic").only(("qrdn",))


# --- running ---------------------------------------------------------------------------------------------------------

SMALL = Suite(
    name="small",
    description="two cells",
    episodes=2,
    cells=(
        Cell(
            algorithm="ars", env="CartPole-v1", steps=600, range=(20.0, 500.0), documented=(500.0, 1.0), source="there"
        ),
        Cell(algorithm="maskable-ppo", env="CartPole-v1", steps=300, range=(20.0, 500.0), settings={"n_steps": 64}),
        Cell(algorithm="ars", env="Pendulum-v1", steps=10**9, measure=False),
    ),
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    plan = Bench(suite=SMALL, seeds=(0, 1), out=tmp_path_factory.mktemp("bench"), executor="in-process")
    return bench(plan)


def test_every_cell_runs_with_every_seed(ran: Any) -> None:
    assert [(s.algorithm, s.seed) for s in ran.scores] == [(a, s) for s in (0, 1) for a in ("ars", "maskable-ppo")]
    assert not ran.failures
    assert all(score.episodes == 2 and score.seconds > 0.0 for score in ran.scores)
    table = cells(ran)
    assert [row[:2] for row in table.rows] == [(cell.algorithm, cell.env) for cell in SMALL.cells]
    assert table.rows[0][-1] == "500 ± 1 (there)"
    assert table.rows[2][2] == "not measured"
    assert table.header[2].startswith("mean"), "a telephone shows three columns"
    expected = (np.mean([s.mean for s in ran.of(SMALL.cells[0])]) - 20.0) / 480.0
    assert normalized(ran)["ars"]["CartPole-v1"].mean() == pytest.approx(expected)


def test_going_on_runs_what_is_missing(ran: Any) -> None:
    again = bench(attrs.evolve(ran.plan, seeds=(0, 1, 2)))
    assert len(again.scores) == 6
    assert [s for s in again.scores if s.seed < 2] == list(ran.scores), "runs that are finished are not run again"
    with pytest.raises(SettingsError, match="other settings of ars on CartPole-v1"):
        bench(attrs.evolve(ran.plan, budget=100))


def test_a_budget_is_said(tmp_path: Path) -> None:
    plan = Bench(suite=SMALL.only(("ars",)), seeds=(0,), out=tmp_path, budget=500, executor="in-process")
    outcome = bench(plan)
    assert [row[3] for row in cells(outcome).rows] == ["500 of 600 (short)", "500 of 1,000,000,000 (short)"]


def test_failures_are_reported(tmp_path: Path) -> None:
    wrong = Suite(name="x", description="", cells=(Cell(algorithm="ars", env="NoSuch-v0", steps=10), SMALL.cells[0]))
    outcome = bench(Bench(suite=wrong, seeds=(0,), out=tmp_path, executor="in-process"))
    assert len(outcome.scores) == 1
    assert "NoSuch" in outcome.failures[0][2]
    assert cells(outcome).rows[0][2] == "failed, see below"
    assert "NoSuch" in write_report(outcome, "x").read_text()


def test_the_report_needs_nothing_else(ran: Any) -> None:
    page = write_report(ran, "rlsdk bench small <&>").read_text()
    assert "rlsdk bench small &lt;&amp;&gt;" in page
    assert page.count("data:image/png;base64,") == 2  # profiles, and the curves of one environment
    assert "http" not in page
    assert "src='data:" in page
    rows = (ran.plan.out / "scores.csv").read_text().splitlines()
    assert len(rows) == 1 + len(ran.scores)
    assert re.search(
        r"\| ars \| CartPole-v1 \| [\d.]+ \[.+\] \| 600 \| 2 \|", (ran.plan.out / "summary.md").read_text()
    )
    assert page.count("<td class='long'>") == sum(
        len(cell) > 40 for table in all_tables(ran) for row in table.rows for cell in row
    )


def test_edited_reports_are_kept(ran: Any) -> None:
    first, summary = write_report(ran, "rlsdk bench small"), ran.plan.out / "summary.md"
    assert write_report(ran, "rlsdk bench small --jobs 2") == first, "what was not edited is replaced"
    for path in (first, summary):
        path.write_text(path.read_text().replace("CartPole", "Cart pole"))
    edited = first.read_text(), summary.read_text()
    with pytest.warns(UserWarning, match="was edited and stays as it is") as seen:
        second = write_report(ran, "rlsdk bench small")
    assert (first.read_text(), summary.read_text()) == edited
    assert second == first.with_name("report_2.html")
    assert "summary_2.md" in str(seen[0].message)
    for path in (first, summary, second, summary.with_name("summary_2.md")):
        path.unlink()


def test_every_picture_has_a_text_and_its_numbers(ran: Any) -> None:
    page = write_report(ran, "rlsdk bench small").read_text()
    folder = ran.plan.out / "pictures"
    assert sorted(path.name for path in folder.iterdir()) == [
        "curves-CartPole-v1.csv", "curves-CartPole-v1.png", "profiles.csv", "profiles.png",
    ]  # fmt: skip
    texts = re.findall(r"<img alt='([^']+)'", page)
    assert [link for link in re.findall(r"<a href='([^']+)'", page) if (ran.plan.out / link).is_file()] == [
        "pictures/profiles.csv", "pictures/curves-CartPole-v1.csv",
    ]  # fmt: skip
    assert re.search(r"ars: \d+% of runs above 0.5", texts[0])
    assert re.search(r"curves on CartPole-v1: return of evaluations.*ars.*return of evaluations ends at \d", texts[1])
    curves = list(csv.DictReader((folder / "curves-CartPole-v1.csv").open()))
    assert {(row["experiment"], row["seeds"]) for row in curves} == {("ars", "2"), ("maskable-ppo", "2")}
    assert f"ends at {float(curves[-1]['value']):.2f}" in texts[1]
    rows = list(csv.DictReader((folder / "profiles.csv").open()))
    for name in ("ars", "maskable-ppo"):
        shares = [float(row["share_above"]) for row in rows if row["algorithm"] == name]
        assert len(shares) == 101
        assert shares == sorted(shares, reverse=True)


@pytest.mark.slow
def test_stopped_and_started_again(tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text("[[cells]]\nalgorithm = 'ars'\nenv = 'CartPole-v1'\nsteps = 15_000\n")
    command = [
        sys.executable,
        "-m",
        "rlsdk",
        "bench",
        str(suite),
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "o"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "o").rglob("checkpoints/*.rlsdk")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert b"the same command continues" in error
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "report:" in done.stdout
    assert "resuming ars" in next((tmp_path / "o").rglob("log.txt")).read_text()


# --- comparing -------------------------------------------------------------------------------------------------------


def run_of(mean: float, seed: int, env: str = "E", algorithm: str = "a", steps: int = 100) -> Score:
    context = {"std": 0.0, "episodes": 1, "seconds": 1.0, "folder": Path()}
    return Score(algorithm=algorithm, env=env, seed=seed, budget=steps, steps=steps, mean=mean, **context)


def test_two_sets_of_runs() -> None:
    good, bad = [run_of(10.0 + k, k) for k in range(5)], [run_of(1.0 + k, k) for k in range(5)]
    found = compare([*good, run_of(0.0, 0, env="F")], bad)
    (row,) = found.rows
    assert (row.env, row.runs, row.means, row.better) == ("E", (5, 5), (12.0, 3.0), 1.0)
    assert row.difference.value == 9.0
    assert row.p_value == pytest.approx(2 / 252)  # A is above B in all pairs: 2 of 252 orders are as extreme
    assert found.left_out == ("F",)
    assert found.verdict().startswith("A is better")
    assert compare(bad, good).verdict().startswith("B is better")
    assert compare(good, good).verdict().startswith("these runs show no difference")


def test_no_verdict_without_evidence() -> None:
    """Few runs, or a difference that is not significant, give no winner."""
    for count in range(1, 5):
        good, bad = ([run_of(base + k, k) for k in range(count)] for base in (100.0, 1.0))
        assert compare(good, bad).verdict().startswith("too few runs for a verdict")
    mixed = [run_of(float(k), k) for k in range(8)], [run_of(k + 1.6, k) for k in range(8)]
    found = compare(*mixed)
    assert found.verdict().startswith("these runs show no difference")
    assert found.p_value == pytest.approx(found.rows[0].p_value, abs=0.03)
    few = [[*mixed[0], run_of(1.0, 0, env="F")], [*mixed[1], run_of(0.0, 0, env="F")]]
    assert "the fewest here is 1" in compare(*few).verdict()


def test_the_permutation_test_is_honest() -> None:
    """Without a difference p < 0.05 in at most about 5 % of cases, also with ties and several environments."""
    rng = np.random.default_rng(0)
    p_values = [
        chance(*([rng.integers(6, size=n).astype(float) for n in (5, 7)] for _ in "xy"), permutations=199)
        for _ in range(300)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.09
    together = chance([np.arange(5.0), np.arange(5.0)], [np.arange(5.0) + 2.6] * 2)
    assert together < chance([np.arange(5.0)], [np.arange(5.0) + 2.6])  # two environments are more evidence than one


def test_what_cannot_be_compared() -> None:
    one = [run_of(1.0, 0)]
    for other, message in (
        ([run_of(1.0, 0, env="F")], "no environment is in both"),
        ([run_of(1.0, 0), run_of(1.0, 0, algorithm="b")], "several algorithms"),
        ([run_of(1.0, 0), run_of(1.0, 1, steps=200)], "different lengths"),
    ):
        with pytest.raises(SettingsError, match=message):
            compare(one, other)


def test_compare_from_the_command_line(ran: Any, tmp_path: Path) -> None:
    folder, call = ran.plan.out, CliRunner().invoke
    shown = call(app, ["compare", str(folder / "ars"), str(folder / "maskable-ppo")])
    assert shown.exit_code == 0, shown.output
    assert "CartPole-v1" in shown.output
    found = json.loads(call(app, ["compare", str(folder / "ars"), str(folder / "maskable-ppo"), "--json"]).output)
    assert found["rows"][0]["runs"] == [len(scores_below(folder / "ars")), len(scores_below(folder / "maskable-ppo"))]
    with pytest.raises(RlsdkError, match="no finished run"):
        scores_below(tmp_path)
    (tmp_path / "run.json").write_text('{"status": "finished"}')
    with pytest.raises(RlsdkError, match="damaged"):
        scores_below(tmp_path)
