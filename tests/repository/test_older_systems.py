"""Every algorithm and system of stable-baselines 2 has a row in docs/compatibility.md; the settings in it exist."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADING = "## Systems of the older documents"
SYSTEMS = (
    "A2C",
    "ACER",
    "ACKTR",
    "DDPG",
    "DQN",
    "GAIL",
    "HER",
    "PPO1",
    "PPO2",
    "SAC",
    "TD3",
    "TRPO",
    "pretrain",
    "VecEnv",
)


def rows() -> list[list[str]]:
    """Return the rows of the table: (system, its replacement in rlsdk, parameters)."""
    section = (ROOT / "docs/compatibility.md").read_text().partition(HEADING)[2]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines()]
    return [row for row in found if len(row) == 3 and row[0] != "system"]


def parameters_of(place: str) -> set[str] | None:
    """The parameter names of the class or function that a cell names; None if its package is not installed."""
    if package := re.match(r"`(rlsdk-[\w-]+)`: `(\w+)`", place):
        module = package[1].replace("-", "_")
        if find_spec(module) is None:
            return None
        kind = getattr(import_module(module), package[2])
    else:
        named = re.search(r"`(rlsdk[\w.]+)`", place)
        assert named, place
        module, _, name = named[1].rpartition(".")
        kind = getattr(import_module(module), name)
    return set(inspect.signature(kind).parameters)


def test_every_system_has_a_row() -> None:
    text = " ".join(row[0] for row in rows())
    assert [system for system in SYSTEMS if system not in text] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_settings_exist(row: list[str]) -> None:
    known = parameters_of(row[1])
    if known is None:
        assert not (ROOT / "contrib_algos" / row[1].split("`")[1]).is_dir(), "the package is here, but not installed"
        return
    named = re.findall(r"→ `([\w.]+)`", row[2])
    assert named
    assert set(named) - known == set()
