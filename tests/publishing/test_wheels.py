"""`make wheels` builds a wheel of every package and an index for pip; the install commands in pages work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from publishing.packages import packages
from publishing.wheels import build_wheels, write_index
from tests.repository.test_docs import PAGES, ROOT

INSTALL = re.compile(r"(?:pip|uv pip) install ([^\n`]*)")
BY_NAME = re.compile(r"(?<![\w/.-])rlsdk(?:-[\w-]+)?(?![\w/.\[-])")
"""A package of this project without a path, which needs an index. Names with extras (`rlsdk[plot]`) do not match."""
INSTALLED_BY = [
    path
    for path in [*PAGES, *sorted(ROOT.glob("examples/**/*.md"))]
    if path.name not in ("publishing.md", "CHANGELOG.md")
]
"""Pages with install commands for users; docs/publishing.md is for authors of published plugins."""


def a_wheel(folder: Path, name: str, version: str = "1.0", pythons: str = "Requires-Python: >=3.11\n") -> Path:
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        stated = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{pythons}"
        archive.writestr(f"{name}-{version}.dist-info/METADATA", stated)
    return wheel


def test_every_package_is_found() -> None:
    names = [package.name for package in packages()]
    assert names[0] == "rlsdk"
    assert set(names[1:]) == {path.parent.name for path in ROOT.glob("*/rlsdk-*/pyproject.toml")}
    assert all(package.changelog.exists() and re.match(r"\d+\.\d+", package.version) for package in packages())


def test_the_index_names_files_hashes_and_pythons(tmp_path: Path) -> None:
    a_wheel(tmp_path, "acme_b"), a_wheel(tmp_path, "acme_b", "1.1"), a_wheel(tmp_path, "acme_A", pythons="")
    index = write_index(tmp_path)
    assert re.findall('href="(.+?)"', (index / "index.html").read_text()) == ["acme-a/", "acme-b/"]
    page = (index / "acme-b" / "index.html").read_text()
    links = re.findall(r'href="(.+?)#sha256=([0-9a-f]{64})" data-requires-python="&gt;=3.11"', page)
    assert [link for link, _ in links] == [f"../../acme_b-{v}-py3-none-any.whl" for v in ("1.0", "1.1")]
    assert "requires-python" not in (index / "acme-a" / "index.html").read_text()
    assert all((index / "acme-b" / link).resolve().is_file() for link, _ in links)


def test_an_old_index_is_replaced(tmp_path: Path) -> None:
    a_wheel(tmp_path, "acme_b")
    write_index(tmp_path)
    a_wheel(tmp_path, "acme_c")
    (tmp_path / "acme_b-1.0-py3-none-any.whl").unlink()
    assert [path.name for path in write_index(tmp_path).iterdir() if path.is_dir()] == ["acme-c"]


@pytest.mark.full
def test_a_package_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be built"):
        build_wheels([tmp_path], tmp_path / "dist")


def test_pages_install_what_is_there() -> None:
    """No package is published: pages install from the repository, or from the index that `make wheels` writes."""
    lines = [(str(path.relative_to(ROOT)), line) for path in INSTALLED_BY for line in INSTALL.findall(path.read_text())]
    assert len(lines) > 15
    assert [found for found in lines if BY_NAME.search(found[1]) and "dist/simple" not in found[1]] == []
    made = "./rlsdk-my-algo"  # the folder that `rlsdk new` writes on the page of the tutorial
    places = {place for _, line in lines for place in re.findall(r"\./[\w/*-]+", line)}
    assert {place for place in places - {made} if not any(path.is_dir() for path in ROOT.glob(place))} == set()


def dependencies(folder: Path) -> Path:
    """Make a folder of links to the installed packages except those of this project; it replaces a second index."""
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_*(editable_+\w*)?rlsdk", path.name):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.slow
def test_an_empty_environment_installs_from_the_index(tmp_path: Path) -> None:
    """The dependencies are present, so pip needs no index except the one that `make wheels` writes."""
    wanted = [package for package in packages() if package.name in ("rlsdk", "rlsdk-tqc", "rlsdk-ppo")]
    build_wheels([package.folder for package in wanted], tmp_path / "dist")
    index = write_index(tmp_path / "dist").as_uri()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{dependencies(tmp_path / 'others')}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHONPATH"))}

    def run(*command: str) -> str:
        place = str(tmp_path / "env" / "bin" / command[0])
        done = subprocess.run(
            [place, *command[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "Successfully installed rlsdk-" in run(
        "python", "-m", "pip", "--isolated", "install", "--index-url", index, "rlsdk", "rlsdk-tqc"
    )
    assert [line.split()[0] for line in run("rlsdk", "list").splitlines() if line.startswith("tqc")] == ["tqc"]
    small = ("--steps", "120", "--eval-every", "0", "--set", "learning_starts=100", "--out", "first")
    run("rlsdk", "run", "tqc", "--env", "Pendulum-v1", *small)
    assert (tmp_path / "first" / "final.rlsdk").exists()
    environment["PIP_EXTRA_INDEX_URL"] = index  # docs/publishing.md: with it, the install lines in messages work
    run("python", "-m", "pip", "install", "--index-url", index, "rlsdk-ppo")
    assert "ppo" in run("rlsdk", "list")
