"""New packages can be released unchanged: license, metadata, CI workflows, and the commands in docs/publishing.md."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from rlsdk_testing.scaffold import new_package, rendered
from rlsdk_testing.scaffold.families import FamilyTemplate, family_templates
from tests.repository.test_docs import blocks
from tests.throwaway import Environment, build_wheels

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "publishing.md"
with_each_family = pytest.mark.parametrize("template", family_templates(), ids=lambda each: each.folder.name)


def project(files: dict[str, str]) -> dict[str, Any]:
    return tomllib.loads(files["pyproject.toml"])["project"]  # type: ignore[no-any-return]


def workflow(name: str) -> dict[str, Any]:
    files = rendered("my-algo", "on-policy")
    return YAML(typ="safe", pure=True).load(files[f".github/workflows/{name}.yml"])  # type: ignore[no-any-return]


def minors_of(classifiers: list[str]) -> set[str]:
    """Return the Python versions, such as `3.11`, that classifiers name."""
    return {
        found[1] for each in classifiers if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
    }


@with_each_family
def test_the_license_is_whole(template: FamilyTemplate) -> None:
    files = rendered("my-algo", template.family, template.for_actions)
    stated = project(files)
    assert (stated["license"], stated["license-files"]) == ("MIT", ["LICENSE"])
    assert "Copyright (c) the authors of rlsdk-my-algo\n" in files["LICENSE"]
    assert "WITHOUT WARRANTY OF ANY KIND" in files["LICENSE"]
    assert "[" not in files["LICENSE"], "nothing is left to fill in"


@with_each_family
def test_the_range_of_the_sdk_is_one(template: FamilyTemplate) -> None:
    files = rendered("my-algo", template.family, template.for_actions)
    (stated,) = [Requirement(each) for each in project(files)["dependencies"] if Requirement(each).name == "rlsdk"]
    assert stated.specifier == SpecifierSet(tomllib.loads(files["src/rlsdk_my_algo/rlsdk.toml"])["sdk"])
    assert "tests/test_release.py" in files


def test_every_python_that_the_sdk_and_torch_have_is_tried_and_stated() -> None:
    """Classifiers and CI matrix have every Python version that the SDK accepts and all its dependencies name."""
    needed = [Requirement(each) for each in requires("rlsdk") or [] if "extra ==" not in each]
    named = [minors_of(metadata(each.name).get_all("Classifier") or []) for each in needed]
    common = set.intersection(*[minors for minors in named if minors])
    accepted = {minor for minor in common if minor in SpecifierSet(metadata("rlsdk")["Requires-Python"])}
    stated = project(rendered("my-algo", "on-policy"))
    assert minors_of(stated["classifiers"]) == accepted
    assert set(workflow("test")["jobs"]["test"]["strategy"]["matrix"]["python"]) == accepted
    assert stated["requires-python"] == metadata("rlsdk")["Requires-Python"]


def test_what_is_tested_is_the_wheel() -> None:
    jobs = workflow("test")["jobs"]
    assert "python -m build" in str(jobs["build"]["steps"])
    assert jobs["test"]["needs"] == "build"
    commands = [step.get("run", "") for step in jobs["test"]["steps"]]
    order = [
        next(number for number, line in enumerate(commands) if words in line)
        for words in ("pip install torch", "dist/*.whl", "mypy", "rm -r src", "pytest", "rlsdk check my-algo")
        for words in [words.replace("pip install torch", 'pip install "torch')]
    ]
    assert order == sorted(order)
    assert not any("-e ." in line for line in commands)


def test_only_the_last_job_may_publish() -> None:
    jobs = workflow("publish")["jobs"]
    assert workflow("publish")["on"] == {"push": {"tags": ["v*"]}}
    assert workflow("publish")["permissions"] == workflow("test")["permissions"] == {"contents": "read"}
    assert "workflow_call" in workflow("test")["on"]
    assert jobs["test"] == {"uses": "./.github/workflows/test.yml"}
    assert (jobs["publish"]["needs"], jobs["publish"]["environment"]) == ("test", "release")
    assert jobs["publish"]["permissions"] == {"contents": "read", "id-token": "write"}
    text = str(workflow("publish")) + str(workflow("test"))
    assert "secrets" not in text
    assert "password" not in text
    assert not re.search(r"https?://|\w\.(org|com|io)\b", text), "no index is named: users choose theirs"


def check_of_a_release() -> str:
    (step,) = [each for each in workflow("publish")["jobs"]["publish"]["steps"] if "agree" in each.get("name", "")]
    return str(step["run"])


@pytest.mark.parametrize(
    ("tag", "wheel", "changelog", "words"),
    [
        ("v0.1.0", "0.1.0", "## 0.1.0 (2026-12-01)", None),
        ("v0.1.0", "0.1.0", "## 0.1.0", None),
        ("v0.2.0", "0.1.0", "## 0.2.0 (2026-12-01)", "set __version__ to 0.2.0 or move the tag"),
        ("v0.1.0", "0.1.0", "## 0.1.0 (unreleased)", "or it is marked as unreleased"),
        ("v0.1.0", "0.1.0", "## 0.0.9 (2026-12-01)", "CHANGELOG.md has no section '## 0.1.0'"),
        ("v0.1.0", "0.1.0", "## 0.1.01", "CHANGELOG.md has no section '## 0.1.0'"),
        ("v0.1.0", "0.1.0", "## 0x1.0", "CHANGELOG.md has no section '## 0.1.0'"),
    ],
)
def test_tag_version_and_changelog_agree(
    tag: str, wheel: str, changelog: str, words: str | None, tmp_path: Path
) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"rlsdk_my_algo-{wheel}-py3-none-any.whl").touch()
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog of rlsdk-my-algo\n\n{changelog}\n\nFirst version.\n")
    command = ["bash", "-e", "-o", "pipefail", "-c", check_of_a_release()]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "GITHUB_REF_NAME": tag}, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (words is None), done.stdout + done.stderr
    assert (words or "") in done.stdout


@pytest.mark.full
def test_a_wheel_has_the_license(tmp_path: Path) -> None:
    (wheel,) = build_wheels([new_package("my-algo", "on-policy", tmp_path)], tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (stated,) = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert "License-Expression: MIT" in stated
    assert minors_of(re.findall("^Classifier: (.*)$", stated, re.MULTILINE)) >= {"3.11", "3.12"}


@pytest.mark.parametrize("page", [PAGE, ROOT / "docs" / "writing-a-plugin.md"], ids=lambda page: page.name)
def test_pages_for_authors_name_what_they_have(page: Path) -> None:
    """Authors have only the tests in their new package; wheels of rlsdk do not contain the tests of this repository."""
    written = {
        place for template in family_templates() for place in rendered("a", template.family, template.for_actions)
    }
    named = re.findall(r"`(tests/[\w./-]*|test_\w+\.py)`", page.read_text())
    assert [name for name in named if name not in written] == []


PREPARED = """
set -e -o pipefail
python() {  # without what needs a network: tools for an editable install, an environment of the build
  if [ "$2" = build ]; then set -- -m build --wheel --no-isolation; fi
  for each in "$@"; do shift; [ "$each" = --editable ] || set -- "$@" "$each"; done
  command python "$@"
}
git() { command git "$@"; if [ "$1" = init ]; then command git remote add origin "$REMOTE"; fi; }
"""


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Run all commands of the page in order, without a network; a folder is the index, a bare repository the remote."""
    environment = Environment(tmp_path / "env", build_wheels([ROOT], tmp_path / "wheels"))
    remote, folder = tmp_path / "remote.git", tmp_path / "work"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    names = {f"GIT_{who}_{what}": "me@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_FIND_LINKS": "dist"}
    path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    script = PREPARED + "\n".join(blocks(PAGE, "bash"))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **names, **pip, "PATH": path, "REMOTE": str(remote)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "my-algo" in done.stdout
    tags = subprocess.run(["git", "-C", str(remote), "tag"], capture_output=True, text=True, check=True)
    assert tags.stdout.split() == ["v0.1.0"]
    command = ["bash", "-e", "-o", "pipefail", "-c", check_of_a_release()]
    subprocess.run(command, cwd=folder / "rlsdk-my-algo", env={**os.environ, "GITHUB_REF_NAME": "v0.1.0"}, check=True)
