"""Releases: the check of tag, version and CHANGELOG, and the CI workflows, which only call targets of the Makefile."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from publishing.packages import ROOT, packages
from publishing.release import ReleaseError, check, main

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYPROJECT = """
[project]
name = "{name}"
dependencies = {dependencies}
[tool.hatch.version]
path = "{source}"
"""
Change = Callable[[Path], object]


def write_package(folder: Path, name: str, dependencies: list[str], version: str) -> None:
    source = folder / "src" / name.replace("-", "_") / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text(f'__version__ = "{version}"\n')
    stated = PYPROJECT.format(name=name, dependencies=dependencies, source=source.relative_to(folder).as_posix())
    (folder / "pyproject.toml").write_text(stated)
    (folder / "README.md").write_text(f"pip install {name}\n")
    (folder / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {version} (2026-11-01)\n\nFaster.\n\n## 0.0.1 (2026-01-01)\n\nFirst.\n"
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with rlsdk 0.3.1 and a plugin 0.2.0 that accepts this version."""
    write_package(tmp_path, "rlsdk", [], "0.3.1")
    plugin = tmp_path / "plugins" / "rlsdk-tqc"
    write_package(plugin, "rlsdk-tqc", ["rlsdk>=0.3,<0.4"], "0.2.0")
    (plugin / "src" / "rlsdk_tqc" / "rlsdk.toml").write_text('sdk = "<0.4,>=0.3"\n')
    return tmp_path


def replaced(place: str, old: str, new: str) -> Change:
    def change(root: Path) -> None:
        path = root / "plugins" / "rlsdk-tqc" / place
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def test_one_tag_names_one_package(repository: Path) -> None:
    assert check("rlsdk-tqc-v0.2.0", repository).folder == repository / "plugins" / "rlsdk-tqc"
    assert check("rlsdk-v0.3.1", repository).folder == repository


INIT, LOG = "src/rlsdk_tqc/__init__.py", "CHANGELOG.md"


@pytest.mark.parametrize(
    ("tag", "change", "words"),
    [
        ("v0.2.0", None, "must be NAME-vVERSION, such as rlsdk-tqc-v0.2.0; names are rlsdk, rlsdk-tqc"),
        ("rlsdk-nosuch-v0.2.0", None, "names are rlsdk, rlsdk-tqc"),
        ("rlsdk-tqc-v0.2.0; rm -r .", None, "is not a version"),
        ("rlsdk-tqc-v0.2.1", None, "has 0.2.1, but __version__ of rlsdk-tqc is 0.2.0"),
        ("rlsdk-tqc-v0.2.0-rc1", None, "which package indexes write '0.2.0rc1'"),
        ("rlsdk-tqc-v0.2.0", replaced(INIT, "0.2.0", "0.3.0"), "has 0.2.0, but __version__ of rlsdk-tqc is 0.3.0"),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, "## 0.2.0", "## 0.2.00"), "CHANGELOG.md has no section '## 0.2.0 ("),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, "## 0.2.0", "## 0x2.0"), "CHANGELOG.md has no section '## 0.2.0 ("),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, "2026-11-01", "unreleased"), "has 'unreleased' for a date"),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, " (2026-11-01)", ""), "has 'nothing' for a date"),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, "2026-11-01", "9999-11-01"), "a date in the future, 9999-11-01"),
        ("rlsdk-tqc-v0.2.0", replaced(LOG, "Faster.", ""), "the section of 0.2.0 is empty"),
        ("rlsdk-tqc-v0.2.0", replaced("pyproject.toml", "<0.4", "<0.3.1"), "this repository has 0.3.1"),
        ("rlsdk-tqc-v0.2.0", replaced("pyproject.toml", "rlsdk>=0.3,<0.4", "torch"), "depends on no range of rlsdk"),
        ("rlsdk-tqc-v0.2.0", replaced("pyproject.toml", ">=0.3,", ">=0.2,"), "make them equal"),
        (
            "rlsdk-tqc-v0.2.0",
            replaced("README.md", "rlsdk-tqc", "./plugins/rlsdk-tqc  # nothing is published yet"),
            "write: pip install rlsdk-tqc",
        ),
    ],
)
def test_what_does_not_agree_is_named(tag: str, change: Change | None, words: str, repository: Path) -> None:
    if change:
        change(repository)
    with pytest.raises(ReleaseError) as caught:
        check(tag, repository)
    assert words in str(caught.value)


def test_all_problems_come_at_once(repository: Path) -> None:
    replaced("README.md", "pip", "Nothing is published yet")(repository)
    with pytest.raises(ReleaseError) as caught:
        check("rlsdk-tqc-v0.3.0", repository)
    assert len(str(caught.value).splitlines()) == 3


def test_what_is_not_ready_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be released"):
        main("rlsdk-tqc-v99.0.0", tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def workflow(path: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(path)  # type: ignore[no-any-return]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_the_makefile_and_name_no_index(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for step in steps(path):
        if "run" in step:
            target = re.fullmatch(r'make ([\w-]+)( TAG="\$GITHUB_REF_NAME")?', step["run"])
            assert target, step
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE)
    text = path.read_text()
    assert not re.search(r"https?://|\w\.(org|com|io)\b|secrets\.|password:", text)
    assert workflow(path)["permissions"] == {"contents": "read"}


def test_every_python_and_system_is_tried() -> None:
    """CI tests every accepted Python version that all dependencies list in their classifiers, on three systems."""
    matrix = workflow(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    accepted = SpecifierSet(metadata("rlsdk")["Requires-Python"])
    needed = [Requirement(text).name for text in requires("rlsdk") or [] if "extra ==" not in text]
    named = [
        set(re.findall(r"Python :: (3\.\d+)$", "\n".join(metadata(name).get_all("Classifier") or []), re.MULTILINE))
        for name in needed
    ]
    common = set.intersection(*[minors for minors in named if minors])
    assert set(matrix["python"]) == {minor for minor in common if minor in accepted}


def test_only_the_last_job_may_publish() -> None:
    content = workflow(ROOT / ".github/workflows/release.yml")
    assert content["on"] == {"push": {"tags": ["rlsdk*-v*"]}}
    assert content["jobs"]["publish"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert content["jobs"]["publish"]["environment"] == "release"
    assert set(content["jobs"]["publish"]["needs"]) == set(content["jobs"]) - {"publish"}
    assert [name for name, job in content["jobs"].items() if "permissions" in job] == ["publish"]
    assert content["jobs"]["test"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in workflow(ROOT / ".github/workflows/test.yml")["on"]


def test_tags_of_all_packages_start_the_workflow() -> None:
    (pattern,) = workflow(ROOT / ".github/workflows/release.yml")["on"]["push"]["tags"]
    accepted = re.compile(pattern.replace("*", ".*"))
    assert [package.name for package in packages() if not accepted.fullmatch(f"{package.name}-v1.0.0")] == []
