"""The docker image and the conda recipe agree with the metadata of the packages and with the repository."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from publishing.conda import RECIPE, requirement, written
from publishing.packages import ROOT, Package, packages

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
IMAGE_EXTRAS = ("datasets", "envs", "fast", "interchange", "lab", "parallel", "sb3")
"""Extras of rlsdk whose packages the image holds beside all algorithms."""


def sent(place: str) -> bool:
    """Whether docker gets the file or folder. The last pattern that matches it, or a folder above it, decides."""
    path, found = Path(place), True
    for pattern in IGNORED:
        wanted = pattern.lstrip("!").removeprefix("**/")
        parts = [path, *path.parents[:-1]] if "**" not in pattern else [Path(part) for part in path.parts]
        if any(fnmatch.fnmatch(str(each), wanted) for each in parts):
            found = pattern.startswith("!")
    return found


def test_the_image_gets_what_it_installs() -> None:
    (stated,) = re.findall('^ARG PACKAGES="(.*)"$', DOCKERFILE, re.MULTILINE)
    folders = stated.split()
    manifests = [path for path in ROOT.glob("*/rlsdk-*/src/*/rlsdk.toml") if "family =" in path.read_text()]
    algorithms = [path.parents[2].relative_to(ROOT).as_posix() for path in manifests]
    others = [name.partition("[")[0] for extra in IMAGE_EXTRAS for name in EXTRAS[extra]]
    assert sorted(folders) == sorted([*algorithms, *(f"plugins/{name}" for name in others)])
    assert [place for place in folders if not (ROOT / place / "pyproject.toml").is_file()] == []
    for place in (".", *folders):
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            assert sent((Path(place) / name).as_posix()), (place, name)
    assert all(map(sent, ("constraints.txt", "rlsdk/cli/main.py", "plugins/rlsdk-tqc/src/rlsdk_tqc/rlsdk.toml")))
    others = (".git/config", "docs/index.md", "demo/final.rlsdk", "plugins/rlsdk-tqc/tests/test_x.py", "rlsdk/a.pyc")
    assert not any(map(sent, others))


def test_the_image_runs_without_rights() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall("^USER (.*)$", last, re.MULTILINE) == ["1000"]
    assert last.index("USER 1000") < last.index("ENTRYPOINT")
    assert all(name.endswith("-slim") for name in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert not re.search(r"https?://|\w\.(org|com|io)\b", DOCKERFILE)


@pytest.mark.slow
def test_the_image_is_built(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no docker engine answers here")
    subprocess.run(["make", "test-image"], cwd=ROOT, check=True, timeout=1800)


def test_the_recipe_is_current() -> None:
    assert RECIPE.read_text() == written(packages()[0], RECIPE.parent), "run: python -m publishing.conda"


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_recipes_need_what_packages_need(package: Package) -> None:
    try:
        content = YAML(typ="safe", pure=True).load(written(package, RECIPE.parent))
    except ValueError as error:
        pytest.skip(str(error))
    assert content["package"] == {"name": package.name, "version": package.version}
    assert (RECIPE.parent / content["source"]["path"]).resolve() == package.folder.resolve()
    needed = {name: bounds for name, _, bounds in (line.partition(" ") for line in content["requirements"]["run"])}
    stated = {Requirement(text).name: Requirement(text).specifier for text in package.project["dependencies"]}
    if any(text.startswith("rlsdk[fast,sb3]") for text in package.project["dependencies"]):
        stated |= {"rlsdk-kernels": SpecifierSet(), "rlsdk-sb3": SpecifierSet()}
    assert set(needed) == {"python", *stated} - {"torch"} | ({"pytorch"} if "torch" in stated else set())
    for name, bounds in stated.items():
        assert set(needed["pytorch" if name == "torch" else name].split(",")) == set(map(str, bounds)) or not bounds


def test_what_conda_cannot_state_is_refused() -> None:
    assert requirement("torch>=2.8") == "pytorch >=2.8"
    assert requirement("rlsdk<0.2,>=0.1") == "rlsdk >=0.1,<0.2"
    with pytest.raises(ValueError, match="extras or a marker"):
        requirement("gymnasium[mujoco]>=1.1")
