"""The capabilities that plugins ship are those that were measured, and docs/capabilities.md shows them.

python -m tests.packages.test_capabilities     measures all, writes the files of our plugins and the page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cattrs
import pytest

from rlsdk.registry import find, unregister
from rlsdk.registry.discovery import algorithms
from rlsdk.registry.packaged_files import capabilities
from rlsdk_testing.capabilities import measure, write
from tests.combination_table import BEGIN, END, OURS, table
from tests.small_algorithms import register_reinforce

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "capabilities.md"
HEAD = """# What each algorithm can do

This table was measured. For every cell a small agent was trained, used for prediction, stopped and resumed, and
exported (`python -m tests.packages.test_capabilities`). `rlsdk check ID --capabilities` measures any plugin, and `rlsdk info
ID` shows the result. "Recurrent" is whether policies have a memory: none of them (no), some (optional) or all
(always). "Resume" means that a resumed training gives exactly the result of an uninterrupted one. Memory and export
were measured with every policy, and resuming with every policy for vectors.

| algorithm | actions | observations | masks | recurrent | several environments | resume | export |
|---|---|---|---|---|---|---|---|
"""
COMBINED = f"""
## What can be combined

You can combine all entries of a row, such as an LSTM with masks, images and gSDE, or n-step targets with
priorities. There are two exceptions. Hindsight replay supports only one-step targets and needs a Dict observation
with goals. gSDE needs Box actions. The table comes from the manifests and settings (`python -m
tests.combination_table`).

{BEGIN}"""


def page() -> str:
    """The text of docs/capabilities.md, made from the files that the plugins ship."""
    rows = []
    for name in OURS:
        found = capabilities(find(name)) or {}
        marks = ["yes" if found[key] else "no" for key in ("environments", "resume", "export")]
        spaces = [", ".join(found[key]) for key in ("actions", "observations")]
        cells = [f"`{name}`", *spaces, found["masks"], found["recurrent"], *marks]
        rows.append(f"| {' | '.join(cells)} |\n")
    return f"{HEAD}{''.join(rows)}{COMBINED}{table()}{END}\n"


def as_json(found: Any) -> Any:
    return json.loads(json.dumps(cattrs.unstructure(found)))


def test_the_page_shows_what_the_plugins_ship() -> None:
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("name", OURS)
def test_the_manifest_claims_what_works(name: str) -> None:
    plugin = find(name)
    found = capabilities(plugin)
    assert plugin.manifest is not None
    assert found is not None
    assert tuple(found["actions"]) == plugin.manifest.actions
    assert set(found["observations"]) - {"image"} == set(plugin.manifest.observations)
    assert (found["recurrent"] == "always") is ("recurrent" in plugin.manifest.traits)
    assert found["resume"]
    assert found["environments"]


def rows(text: str) -> list[dict[str, str]]:
    """The rows of the first table in a text: heading -> cell."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    heads = ["algorithm", *lines[0][1:]]
    return [dict(zip(heads, [*cells, *[""] * len(heads)], strict=False)) for cells in lines[1:] if cells != lines[0]]


def test_the_tables_of_the_page_agree() -> None:
    """The first table is measured, the second comes from the manifests: what both show is the same."""
    measured, _, combined = PAGE.read_text().partition("## What can be combined")
    for one, two in zip(rows(measured), rows(combined), strict=True):
        assert one["algorithm"] == two["algorithm"]
        assert one["masks"] == two["masks"], one
        assert (one["recurrent"] == "no") is (two["recurrent"] == ""), one
        assert ("image" in one["observations"]) is ("images" in two["observations"]), one
        every = {"Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"}
        for column in ("actions", "observations"):
            stated = set(two[column].split(", ")) - {"images"}
            assert set(one[column].split(", ")) - {"image"} == (every if stated == {"all"} else stated), one


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_what_is_shipped_is_what_works_now(name: str) -> None:
    assert as_json(measure(name)) == capabilities(find(name))


def test_ours_are_measured_and_a_plugin_that_is_not_has_none() -> None:
    assert all(capabilities(plugin) is not None for plugin in algorithms() if plugin.id in OURS)
    register_reinforce()
    try:
        assert capabilities(find("reinforce")) is None
    finally:
        unregister("reinforce")


if __name__ == "__main__":
    for algorithm in OURS:
        print(write(find(algorithm), measure(algorithm)))
    PAGE.write_text(page())
