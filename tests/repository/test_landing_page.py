"""The numbers on the landing page equal those of the pages and files from which they are taken."""

import csv
import json
import re
import tomllib
from statistics import fmean, median

import pytest

import rlsdk
from benchmarks.animations import AGENTS, FOLDER
from benchmarks.cases import CASES
from benchmarks.curves import FOLDER as CURVES
from benchmarks.curves import RECIPES
from benchmarks.landing import DATA, DESCRIPTION, SIDES, summary
from benchmarks.learning import known, measured
from rlsdk_testing import clauses
from tests.combination_table import OURS, ROOT
from tests.planted.page import honest_number

PAGES = ("README.md", "docs/index.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8"))


def ratios() -> dict[str, float]:
    """Case -> how many times as fast as its peer it is."""
    table = (ROOT / "docs/performance.md").read_text(encoding="utf-8").partition("## The table")[2]
    return {
        name: float(ratio)
        for name, ratio in re.findall(r"^\| ([a-z][\w-]+) \| \d+ \|[^*|]*\|[^*|]*\| \*\*([\d.]+)x", table, re.MULTILINE)
    }


def algorithm_rows() -> list[list[str]]:
    """The cells of each algorithm in the table of the README."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Algorithms")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| [")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", PAGES)
def test_speed_is_that_of_the_table(name):
    found = ratios().values()
    assert (
        f"**{median(found):.1f} times as fast** as stable-baselines3 and sb3-contrib: the median of {len(found)}"
        in page(name)
    )
    assert f"The slowest case is {min(found):.1f} times as fast" in page(name)
    assert f"about {median(found):.0f} times as fast" in page(name)


@pytest.mark.parametrize("name", PAGES)
def test_counts_are_those_of_the_repository(name):
    assert f"PPO, SAC, DQN and {len(OURS) - 3} more algorithms" in page(name)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("algorithm", ["ppo", "sac", "td3"])
def test_returns_are_those_of_the_packages(name, algorithm):
    row = known(algorithm)["HalfCheetah-v5"]
    ours, theirs = (fmean(row[side]["seeds"].values()) for side in ("ours", "peer"))
    assert f"{algorithm.upper()} {ours:,.0f} ({theirs:,.0f})" in page(name)
    assert all(3 <= len(row[side]["seeds"]) <= 5 for side in ("ours", "peer"))


def test_the_readme_lists_every_algorithm_and_its_speed():
    rows = algorithm_rows()
    ids = [row[1].strip("`") for row in rows]
    assert ids[:3] == ["ppo", "sac", "dqn"]
    assert sorted(ids) == OURS
    for algorithm, speed in zip(ids, (row[4] for row in rows), strict=True):
        own = [f"{ratio:.1f}" for case, ratio in sorted(ratios().items()) if CASES[case].algorithm == algorithm]
        least, most = (min(own, key=float), max(own, key=float)) if own else ("", "")
        expected = "" if not own else f"{least} times" if least == most else f"{least} to {most} times"
        assert speed == expected, algorithm


def test_the_readme_is_short_and_its_badges_and_citation_are_true():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert f"badge/python-{PROJECT['requires-python'].removeprefix('>=')}%2B-" in text
    assert f"badge/license-{PROJECT['license']}-" in text
    (status,) = [each.split()[-1].lower() for each in PROJECT["classifiers"] if each.startswith("Development Status")]
    assert f"badge/status-{status}-" in text
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {rlsdk.__version__}\n" in citation
    assert f"license: {PROJECT['license']}\n" in citation


def test_the_pages_of_evidence_quote_current_numbers():
    evidence, needs = page("docs/is-it-correct.md"), page("docs/user-needs.md")
    assert f"it finds {honest_number()}" in evidence
    assert f"has {len(clauses())} clauses" in needs
    assert f"it finds {honest_number()}" in needs
    assert f"checked by {len(clauses())} [clauses]" in evidence
    assert f"the returns of {sum(len(known(algorithm)) for algorithm in measured())} presets" in evidence


@pytest.mark.parametrize("name", PAGES)
def test_the_moving_picture_is_small(name):
    assert "images/halfcheetah.gif" in page(name)
    picture = (ROOT / "docs" / "images" / "halfcheetah.gif").read_bytes()
    assert picture.startswith(b"GIF89a")
    assert len(picture) < 1_000_000


@pytest.mark.parametrize("name", PAGES)
def test_the_picture_has_alt_text_and_its_caption_is_true(name):
    record = json.loads(DATA.read_text(encoding="utf-8"))
    ours, theirs = (summary(record, side) for side in SIDES)
    assert DESCRIPTION in page(name)
    steps, seconds = f"{ours['steps'][-1]:,.0f}", [points["seconds"][-1] for points in (ours, theirs)]
    text = f"{steps} steps take {seconds[0]:.1f} s of processor time with rlsdk and {seconds[1]:.1f} s with sb3-contrib"
    assert text in page(name)
    for points in (ours, theirs):
        assert points["low"][points["steps"] >= 50_000].min() == 500


def test_every_algorithm_has_a_moving_picture():
    pictures = {path.stem: path.stat().st_size for path in FOLDER.glob("*.gif")}
    assert set(pictures) == set(AGENTS) == set(OURS) - {"ppo"}  # PPO has that of the landing page
    assert max(pictures.values()) < 500_000


def test_every_algorithm_has_a_learning_curve():
    assert set(RECIPES) == set(OURS) - {"trpo"}  # TRPO has that of the landing page
    for algorithm, recipe in RECIPES.items():
        *_, last = csv.DictReader((CURVES / f"{algorithm}.csv").read_text(encoding="utf-8").splitlines())
        assert (last["environment"], last["experiment"]) == (recipe.env, algorithm)
        assert int(last["seeds"]) == recipe.seeds >= 3
        drawn = (CURVES / f"{algorithm}.svg").read_text(encoding="utf-8")
        assert (
            f"It ends at {float(last['value']):,.0f} [{float(last['low']):,.0f} .. {float(last['high']):,.0f}]."
            in drawn
        )
