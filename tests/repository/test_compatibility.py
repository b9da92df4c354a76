"""Compatible versions: manifests, package metadata, constraints and the registry agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import rlsdk
from rlsdk.registry import discovery
from tests.tables import in_one_test

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parents[2] for path in ROOT.glob("*/rlsdk-*/src/*/rlsdk.toml"))
"""The packages with a manifest; rlsdk-sb3 has none, because the core asks it by name."""
CORES = ["0.0.9", "0.1.0", "0.1.9", "0.2.0", "1.0.0"]


def requirements(folder: Path, extra: str = "") -> dict[str, Requirement]:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    lines = project.get("optional-dependencies", {}).get(extra, []) if extra else project["dependencies"]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def constraints(name: str) -> dict[str, str]:
    lines = (line.partition("==") for line in (ROOT / name).read_text().splitlines() if "==" in line)
    return {package: version for package, _, version in lines}


@in_one_test
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_the_registry_and_pip_accept_the_same_cores(folder: Path, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each version of the core, the registry and pip both accept a released plugin, or both refuse it with a reason."""
    name = folder.name.removeprefix("rlsdk-")

    def plugin() -> discovery.Plugin:
        return next(each for each in discovery.plugins(rescan=True) if each.id == name)

    fits = core in requirements(folder)["rlsdk"].specifier
    monkeypatch.setattr(discovery, "sdk_version", lambda: core)
    try:
        found = plugin()
        assert (found.problem is None) == fits, found.problem
        assert fits or core in str(found.problem)
    finally:
        monkeypatch.undo()
        restored = plugin()
    assert restored.problem is None


def test_plugins_accept_this_core() -> None:
    for folder in PLUGINS:
        assert rlsdk.__version__ in requirements(folder)["rlsdk"].specifier


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """constraints-oldest.txt, with which `make test-oldest` runs the suite, has exactly the lower bounds of the metadata."""
    oldest, promised = constraints("constraints-oldest.txt"), {**requirements(ROOT), **requirements(ROOT, "testing")}
    promised |= {
        name: each for folder in PLUGINS for name, each in requirements(folder).items() if name not in promised
    }
    promised = {name: each for name, each in promised.items() if not name.startswith("rlsdk")}
    assert set(oldest) == set(promised)
    for name, requirement in promised.items():
        (bound,) = (part for part in requirement.specifier if part.operator == ">=")
        assert Version(bound.version) == Version(oldest[name]), name


def test_plugins_ask_for_nothing_the_oldest_core_does_not_have() -> None:
    oldest = constraints("constraints-oldest.txt")
    for folder in PLUGINS:
        for name, requirement in requirements(folder).items():
            assert name.startswith("rlsdk") or oldest[name] in requirement.specifier, (folder.name, name)


def test_the_newest_versions_are_in_the_ranges() -> None:
    newest = constraints("constraints.txt")
    for name, requirement in requirements(ROOT).items():
        assert newest[name] in requirement.specifier, name


def test_ranges_of_the_sdk_end_before_the_next_breaking_version() -> None:
    for folder in PLUGINS:
        (manifest,) = folder.glob("src/*/rlsdk.toml")
        declared = tomllib.loads(manifest.read_text())["sdk"]
        assert SpecifierSet(declared) == requirements(folder)["rlsdk"].specifier, folder.name
        assert re.search(r"<\d", declared), "open-ended: a breaking core would be accepted"
