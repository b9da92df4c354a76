"""The pip commands in messages and pages: they name folders, files, packages and extras that exist, and what they need."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rlsdk.runtime import packages
from rlsdk.runtime.packages import pip_install

ROOT = Path(__file__).parents[2]
PLACES = ("rlsdk", "plugins/*/src", "contrib_algos/*/src")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with an rlsdk that pip did not install from the folder that these tests run in."""
    monkeypatch.setattr(packages, "OURS", tmp_path / "site" / "rlsdk")
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
        ".": 'optional-dependencies = {fast = ["rlsdk-kernels"], sb3 = ["rlsdk-sb3>=0.1"]}',
        "plugins/rlsdk-tqc": 'dependencies = ["attrs>=24", "rlsdk[fast, sb3]>=0.1,<0.2", "rlsdk-envs>=0.1"]',
        "plugins/rlsdk-kernels": "",
        "plugins/rlsdk-sb3": "",
        "plugins/rlsdk-envs": "",
    }.items():
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "pyproject.toml").write_text(f"[project]\n{lines}\n")
    note(installed, "rlsdk", url=root.as_uri(), dir_info={})
    path = "./copy/plugins"
    both = f"{path}/rlsdk-sb3 {path}/rlsdk-envs"
    assert pip_install("rlsdk-tqc") == f"pip install {path}/rlsdk-tqc {path}/rlsdk-kernels {both}"
    note(installed, "rlsdk-kernels")
    assert pip_install("rlsdk-tqc") == f"pip install {path}/rlsdk-tqc {both}"


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
        if path.name != "packages.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install", line) and "`pip install`" not in line
    ]
    assert written == []


PROJECTS = {
    read["name"]: (path.parent, read)
    for path in (ROOT / "pyproject.toml", *sorted(ROOT.glob("*/rlsdk-*/pyproject.toml")))
    for read in [tomllib.loads(path.read_text())["project"]]
}
"""Package of this project -> (its folder, the table `project` of its pyproject.toml)."""
MANIFESTS = {
    name: tomllib.loads(path.read_text())
    for name, (folder, _) in PROJECTS.items()
    for path in folder.glob("src/*/rlsdk.toml")
}
ALGORITHMS = {manifest["id"]: name for name, manifest in MANIFESTS.items() if "family" in manifest}
COMMANDS = {command: name for name, manifest in MANIFESTS.items() for command in manifest.get("commands", {})}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Dockerfile")),
    *(path for path in sorted(ROOT.glob("docs/**/*.md")) if not {"decisions", "_build"} & set(path.parts)),
    *sorted(ROOT.glob("*/rlsdk-*/README.md")),
    *sorted(path for kind in ("md", "ipynb", "py") for path in ROOT.glob(f"examples/**/*.{kind}")),
]
WRITTEN_BY_READERS = {"rlsdk-my-algo", "rlsdk-clipped", "my-plugin"}
"""Packages that pages let the reader write."""
PART = re.compile(r"(?P<place>[\w./-]*?)(?P<extras>\[[\w,-]+\])?(?P<range>[<>=!~].*)?")


def lines_of(path: Path) -> list[list[str]]:
    """The arguments of each `pip install` in a page. Code between backticks may have a line break."""
    text = path.read_text().replace('\\"', '"')
    text = re.sub(r"(?<!`)`(pip install [^`]*)`", lambda found: f"\n{' '.join(found[1].split())}\n", text)
    lines = re.findall(r"pip install ((?:[^\n`#|&;'\\]|'[^'\n]*')*)", text)
    return [line.replace('"', "").replace("'", "").split() for line in lines]


def wanted(words: list[str]) -> list[str]:
    """What the arguments install: without options, indexes and variables of the shell, and without punctuation of the page.

    A shell replaces `./plugins/rlsdk-*` by the folders of that name.
    """
    named = [
        word.rstrip(",:;)") for word in words if not word.startswith("-") and "/simple" not in word and "$" not in word
    ]
    found = [
        [f"./{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob(word)] if word.endswith("*") else [word]
        for word in named
    ]
    return [word for each in found for word in each]


def starts_from_nothing(words: list[str]) -> bool:
    """Whether the arguments name the core's folder and another one, as on pages that begin with an installation."""
    return bool({".", "./"} & {word.partition("[")[0] for word in words}) and any(
        word.startswith("./") for word in words
    )


def named_by(words: list[str]) -> dict[str, set[str]]:
    """Package of this project -> the extras, of those that the arguments of `pip install` name. Fails for what is not there."""
    found = dict[str, set[str]]()
    for word in words:
        part = PART.fullmatch(word)
        assert part is not None, word
        place, extras = part["place"], {*(part["extras"] or "[]")[1:-1].split(",")} - {""}
        is_folder = word.startswith((".", "/", "examples/"))
        name = Path(place).name if place != "." else "rlsdk"
        if name in WRITTEN_BY_READERS or (is_folder and place.startswith("examples/")):
            assert name in WRITTEN_BY_READERS or (ROOT / place / "pyproject.toml").is_file(), word
            continue
        if is_folder or re.fullmatch(r"rlsdk(-[\w-]+)?", name):
            assert name in PROJECTS, f"there is no package {word}"
            assert not is_folder or (ROOT / place).resolve() == PROJECTS[name][0], f"{word} is another folder"
            assert extras <= set(PROJECTS[name][1].get("optional-dependencies", {})), f"there is no such extra: {word}"
            found.setdefault(name, set()).update(extras)
    return found


def needed_by(named: dict[str, set[str]]) -> set[str]:
    """The packages of this project that pip installs for the named ones and their extras."""
    found, left = set[str](), [(name, extra) for name, extras in named.items() for extra in ("", *extras)]
    while left:
        name, extra = left.pop()
        project = PROJECTS[name][1]
        lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
        for each in map(Requirement, lines):
            if each.name in PROJECTS and (each.name not in found or each.extras):
                pairs = [(each.name, more) for more in ("", *each.extras)]
                left += [pair for pair in pairs if pair != (name, extra)]
                found.add(each.name)
    return found


def used_by(path: Path) -> set[str]:
    """The packages of this project whose commands, algorithms and modules a page shows in code."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    elif path.suffix == ".md":
        text = "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    modules = {each.replace("_", "-") for each in re.findall(r"^\s*(?:from|import) (rlsdk_\w+)", text, re.MULTILINE)}
    called = re.findall(r"^!?(?:> )?rlsdk ([a-z-]+)(?: ([a-z][\w-]*))?(?= |$)", text, re.MULTILINE)
    commands = {COMMANDS[command] for command, _ in called if command in COMMANDS}
    algorithms = {name for _, name in called} | set(re.findall(r"\brlsdk\.make\(\s*\"([\w-]+)\"", text))
    return (modules & set(PROJECTS)) | commands | {ALGORITHMS[name] for name in algorithms & set(ALGORITHMS)}


WITH_LINES = [path for path in PAGES if path.is_file() and lines_of(path)]
in_each_page = pytest.mark.parametrize("page", WITH_LINES, ids=lambda path: path.relative_to(ROOT).as_posix())


@in_each_page
def test_install_lines_name_what_there_is_and_what_that_needs(page: Path) -> None:
    """A folder on the line needs the folders of its packages there too: pip would look for them on an index."""
    for words in lines_of(page):
        named = named_by(wanted(words))
        if any(word.startswith("./") for word in words) and not any("index" in word for word in words):
            assert needed_by(named) - {*named, "rlsdk"} == set(), f"pip install {' '.join(words)}"


@in_each_page
def test_pages_that_begin_with_an_installation_install_what_they_use(page: Path) -> None:
    lines = lines_of(page)
    if any(map(starts_from_nothing, lines)):
        named = {name for words in lines for name in named_by(wanted(words))}
        # pip takes from an index what the named packages need; folders must all be on the line
        for words in lines:
            named |= needed_by(named_by(wanted(words))) if any("index" in word for word in words) else set()
        assert used_by(page) - named == set(), "code on the page uses them, and no line installs them"


def test_pages_are_read_as_they_are_written() -> None:
    assert len(WITH_LINES) > 40
    assert named_by(["./plugins/rlsdk-lab[tune,video]", "torch"]) == {"rlsdk-lab": {"tune", "video"}}
    assert needed_by({"rlsdk-tqc": set()}) == {"rlsdk", "rlsdk-kernels", "rlsdk-sb3"}
    every = {
        path.parent.name for place in ("plugins", "contrib_algos") for path in (ROOT / place).glob("*/pyproject.toml")
    }
    assert needed_by({"rlsdk": {"all"}}) == {"rlsdk", *every}
    assert {*named_by(wanted(["./plugins/rlsdk-*", "./contrib_algos/rlsdk-*"]))} == {*every}
    for wrong in ("./plugins/rlsdk-nothing", "rlsdk[nothing]", "./plugins/rlsdk-ppo", "rlsdk-nothing"):
        with pytest.raises(AssertionError):
            named_by([wrong])


LEFT_OUT = {
    "rlsdk-jax": {"jax", "gymnax", "brax"},  # 395 MB, and older versions of gymnasium
    "rlsdk-interchange": {"human"},  # pygame replaces files of pygame-ce, which rlsdk-pettingzoo needs
    "rlsdk-pettingzoo": {"butterfly"},  # the same
    "rlsdk-testing": {"capabilities"},  # only for authors
    "rlsdk-zoo": {"make"},  # only for the authors of its files
}
"""The extras that `rlsdk[all]` does not install, and why."""


def test_the_extra_all_has_the_extras_of_every_package() -> None:
    extras = PROJECTS["rlsdk"][1]["optional-dependencies"]
    named = named_by(extras["all"])
    for extra in named["rlsdk"]:
        for name, more in named_by(extras[extra]).items():
            named[name] = named.get(name, set()) | more
    for name, (_, project) in PROJECTS.items():
        if name != "rlsdk" and "optional-dependencies" in project:
            missing = set(project["optional-dependencies"]) - named[name]
            assert missing == LEFT_OUT.get(name, set()), name


def test_messages_name_packages_and_extras_that_there_are() -> None:
    found = 0
    for path in [path for place in PLACES for folder in ROOT.glob(place) for path in folder.rglob("*.py")]:
        for call in [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]:
            if getattr(call.func, "id", "") == "pip_install":
                words = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
                named_by([re.sub(r"[<>=].*", "", word) for word in words])
                found += len(words)
    assert found > 10
