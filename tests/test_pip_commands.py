"""The pip commands in messages: they name folders, files or packages that exist where rlsdk came from."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from rlsdk.runtime import pip_commands
from rlsdk.runtime.pip_commands import pip_install

ROOT = Path(__file__).parents[1]
PLACES = ("rlsdk", "plugins/*/src", "contrib_algos/*/src")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with an rlsdk that pip did not install from the folder that these tests run in."""
    monkeypatch.setattr(pip_commands, "OURS", tmp_path / "site" / "rlsdk")
    others = [place for place in sys.path if "site-packages" not in place]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *others])
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def note(site: Path, name: str, **origin: object) -> None:
    """Add an installed package with the note that pip writes about its origin (PEP 610)."""
    folder = site / "site" / f"{name.replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin))


def repository(root: Path) -> Path:
    """A folder that looks like a copy of the repository."""
    for folder in (".", "plugins/rlsdk-tqc", "contrib_algos/rlsdk-ppo"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "pyproject.toml").touch()
    return root


def test_in_the_copy_of_the_repository_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert pip_install("rlsdk[plot]") == 'pip install -e ".[plot]"'
    for name, folder in (("rlsdk-tqc", "plugins"), ("rlsdk-ppo", "contrib_algos")):
        assert re.fullmatch(rf"pip install (-e )?\./{folder}/{name}", pip_install(name))
    monkeypatch.chdir(tmp_path)
    (path,) = [word for word in shlex.split(pip_install("rlsdk-tqc")) if "/" in word]
    assert (Path(path) / "pyproject.toml").is_file()
    assert f'{ROOT.as_posix()}[plot]"' in pip_install("rlsdk[plot]")


def test_installed_from_a_folder(installed: Path) -> None:
    root = repository(installed / "a copy")
    note(installed, "rlsdk", url=root.as_uri(), dir_info={})
    note(installed, "acme-bots", url=(installed / "elsewhere").as_uri(), dir_info={"editable": True})
    (installed / "elsewhere").mkdir()
    assert pip_install("rlsdk-ppo") == 'pip install "./a copy/contrib_algos/rlsdk-ppo"'
    assert pip_install("rlsdk[hub]", "rlsdk-tqc") == 'pip install "./a copy[hub]" "./a copy/plugins/rlsdk-tqc"'
    assert pip_install("acme-bots", options="--upgrade") == "pip install --upgrade -e ./elsewhere"
    assert pip_install("rlsdk>=0.2") == 'bring "./a copy" to rlsdk>=0.2, then: pip install "./a copy"'
    assert pip_install("rlsdk-of-others", "pygame") == "pip install rlsdk-of-others pygame"


@pytest.mark.parametrize(
    "text", ["project = 3", "[project]\ndependencies = 0.5", "project.dependencies = [[]]", "[[project]]"]
)
def test_a_damaged_pyproject_names_nothing(installed: Path, text: str) -> None:
    note(installed, "acme-bots", url=(installed / "elsewhere").as_uri(), dir_info={"editable": True})
    (installed / "elsewhere").mkdir()
    (installed / "elsewhere" / "pyproject.toml").write_text(text)
    assert pip_install("acme-bots") == "pip install -e ./elsewhere"


def test_packages_that_it_needs_are_named_too(installed: Path) -> None:
    root = repository(installed / "copy")
    for folder, lines in {
        ".": 'optional-dependencies.fast = ["rlsdk-kernels"]',
        "plugins/rlsdk-tqc": 'dependencies = ["attrs>=24", "rlsdk[fast]>=0.1,<0.2", "rlsdk-envs>=0.1"]',
        "plugins/rlsdk-kernels": "",
        "plugins/rlsdk-envs": "",
    }.items():
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "pyproject.toml").write_text(f"[project]\n{lines}\n")
    note(installed, "rlsdk", url=root.as_uri(), dir_info={})
    path = "./copy/plugins"
    assert pip_install("rlsdk-tqc") == f"pip install {path}/rlsdk-tqc {path}/rlsdk-kernels {path}/rlsdk-envs"
    note(installed, "rlsdk-kernels")
    assert pip_install("rlsdk-tqc") == f"pip install {path}/rlsdk-tqc {path}/rlsdk-envs"


def test_installed_from_a_wheel_file(installed: Path) -> None:
    names = ("rlsdk-0.1.0-py3-none-any.whl", "rlsdk_td3-0.1.0-py3-none-any.whl", "rlsdk_td3_bc-0.1.0-py3-none-any.whl")
    for name in names:
        (installed / name).touch()
    note(installed, "rlsdk", url=(installed / names[0]).as_uri(), archive_info={})
    assert pip_install("rlsdk-td3") == f"pip install ./{names[1]}"
    assert pip_install("rlsdk[plot]") == f'pip install "./{names[0]}[plot]"'
    assert pip_install("rlsdk-tqc") == "pip install rlsdk-tqc"


def test_installed_from_an_address_or_from_a_folder_that_is_gone(installed: Path) -> None:
    note(installed, "rlsdk", url="https://example.org/rlsdk.git", vcs_info={"vcs": "git"})
    words = "in a copy of https://example.org/rlsdk.git: pip install ./*/rlsdk-tqc ./*/rlsdk-zoo"
    assert pip_install("rlsdk-tqc", "rlsdk-zoo") == words
    assert pip_install("pygame") == "pip install pygame"
    assert pip_install("rlsdk[plot]") == 'pip install "rlsdk[plot]"'  # it is installed, so pip asks no index for it


def test_installed_from_an_index(installed: Path) -> None:
    note(installed, "rlsdk")
    assert pip_install("rlsdk-tqc") == "pip install rlsdk-tqc"
    assert pip_install("rlsdk[plot]") == 'pip install "rlsdk[plot]"'
    for hostile in ("rlsdk>=1;rm -rf $HOME", "a`id`", 'a" b', "a!b"):
        assert shlex.split(pip_install(hostile))[-1] == hostile


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 3}', '{"url": "file://"}', '{"url": "file:///nowhere"}'])
def test_notes_that_cannot_be_used(installed: Path, text: str) -> None:
    note(installed, "rlsdk")
    (installed / "site" / "rlsdk-0.1.0.dist-info" / "direct_url.json").write_text(text)
    assert "rlsdk[plot]" in pip_install("rlsdk[plot]")


def test_no_message_writes_a_pip_command_itself() -> None:
    """Every message gets its command from `pip_install`; templates of new packages and prose in docstrings do not count."""
    written = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for place in PLACES
        for path in (file for folder in ROOT.glob(place) for file in folder.rglob("*.py"))
        if path.name != "pip_commands.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install", line) and "`pip install`" not in line
    ]
    assert written == []
