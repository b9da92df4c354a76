"""The numbers on the landing page equal those of the pages from which they are taken."""

import json
import re
from statistics import median

import pytest

from benchmarks.landing import DATA, DESCRIPTION, SIDES, summary
from tests.combination_table import BEGIN, END, ROOT

PAGES = ("README.md", "docs/index.md")


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_speed_is_that_of_the_table(name):
    table = (ROOT / "docs/performance.md").read_text(encoding="utf-8").partition("## The table")[2]
    ratios = [float(found) for found in re.findall(r"^\| [a-z][\w-]+ \| \d+ \|[^*]*\*\*([\d.]+)x", table, re.MULTILINE)]
    assert (
        f"**{median(ratios):.1f} times as fast** as stable-baselines3 and sb3-contrib: the median of {len(ratios)}"
        in page(name)
    )
    assert f"The slowest case is {min(ratios):.1f} times as fast" in page(name)
    assert f"about {median(ratios):.0f} times as fast" in page(name)


@pytest.mark.parametrize("name", PAGES)
def test_counts_are_those_of_the_repository(name):
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = len(re.findall(r"^\| `", table, re.MULTILINE))
    assert f"PPO, SAC, DQN and {rows - 3} more algorithms" in page(name)


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
