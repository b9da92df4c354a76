"""constraints-oldest.txt, which `make test-oldest` installs, has exactly the lower bounds of the packages' metadata."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from rlsdk_testing.scaffold import rendered

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", *sorted((ROOT / "plugins").glob("*/pyproject.toml"))]
PINNED = {
    requirement.name: Version(next(iter(requirement.specifier)).version)
    for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}
"""Package -> the version in constraints-oldest.txt."""


def requirements(text: str) -> Iterator[Requirement]:
    """The dependencies in a pyproject.toml, without packages of this project, whose ranges their manifests state."""
    found = map(Requirement, tomllib.loads(text)["project"]["dependencies"])
    yield from (each for each in found if each.name.partition("-")[0] != "rlsdk")


def lower_bounds(text: str) -> dict[str, Version]:
    """Map each package to its lower bound in a pyproject.toml."""
    return {
        requirement.name: Version(each.version)
        for requirement in requirements(text)
        for each in requirement.specifier
        if each.operator == ">="
    }


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_what_is_accepted_at_least_is_tried(project: Path) -> None:
    bounds = lower_bounds(project.read_text())
    assert bounds
    assert {name: PINNED.get(name) for name in bounds} == bounds
    unbounded = [each.name for each in requirements(project.read_text()) if each.name not in bounds]
    assert unbounded == [], "give a lower bound: the oldest version that the tests ran with"


def test_nothing_else_is_pinned() -> None:
    assert set(PINNED) == {name for project in PROJECTS for name in lower_bounds(project.read_text())}


def test_new_packages_accept_what_was_tried() -> None:
    bounds = lower_bounds(rendered("my-algo", "on-policy")["pyproject.toml"])
    assert {name: PINNED[name] for name in bounds} == bounds
