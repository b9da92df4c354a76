"""Pages: every link has a target, every name exists, and generated pages are current. tests/docs runs their examples."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from rlsdk.cli.main import Commands
from rlsdk_testing import clauses
from tests.planted.page import honest_number

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("plugins/*/*.md"),
        *ROOT.glob("contrib_algos/**/*.md"),
    ]
    if not path.name.startswith(".")
    and path.parent.name not in ("cards", "commands", "reference", "notebooks")  # these are generated
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text()) if kind == language]


def commands(path: Path) -> list[str]:
    lines = [
        re.split(r"   |  # ", line)[0].rstrip()
        for text in [*blocks(path, ""), *blocks(path, "shell")]
        for line in text.splitlines()
    ]
    return [line for line in lines if line.startswith("rlsdk ") and not re.search(r"\b[A-Z]{4,}\b", line)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_can_be_pasted(path: Path) -> None:
    """Explanations on the line of a command are comments: the shell would take other text after it for arguments."""
    lines = [line for text in [*blocks(path, ""), *blocks(path, "sh")] for line in text.splitlines()]
    assert [line for line in lines if re.match(r"(rlsdk|make|pip) .*\S {3,}[^\s#]", line)] == []


def identifier(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p, "toml")], ids=identifier)
def test_toml_examples_parse(path: Path) -> None:
    for text in blocks(path, "toml"):
        assert tomllib.loads(text)


@pytest.mark.parametrize("path", PAGES, ids=identifier)
def test_links_and_paths_exist(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
    for name in re.findall(r"`((?:rlsdk|plugins|tests|docs|benchmarks)/[\w./-]+)`", text):
        if not re.search(r"-v\d+$|\.\.\.", name):  # environment ids and abbreviated names are not paths
            # decisions are not edited; tests that they name may stand in another folder now
            moved = path.parent.name == "decisions" and any(
                found
                for folder in ("plugins/*/tests", "tests/*", "tests")
                for found in ROOT.glob(f"{folder}/{Path(name).name}")
            )
            assert (ROOT / name).exists() or (path.parent / name).exists() or moved, name


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        break
    else:
        return False
    for attribute in parts[length:]:
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return True


def names_in(path: Path) -> set[str]:
    """The dotted names of rlsdk and of plugins that the page has in backticks, without file names and entry-point groups."""
    return set(re.findall(r"`(rlsdk(?:_\w+)?(?:\.\w+)+)", path.read_text())) - {"rlsdk.toml", "rlsdk.plugins"}


def test_every_name_in_the_table_of_names_is_there() -> None:
    """All names that docs/guides/coming-from-sb3-contrib.md lists exist."""
    names = sorted(names_in(ROOT / "docs/guides/coming-from-sb3-contrib.md"))
    assert len(names) > 35
    assert [name for name in names if not resolves(name)] == []


@pytest.mark.parametrize(
    "path",
    [page for page in PAGES if names_in(page) and page.name != "CHANGELOG.md" and page.parent.name != "decisions"],
    ids=identifier,
)
def test_names_in_pages_exist(path: Path) -> None:
    """Names in pages exist. Changelogs and decisions are exempt, since they describe the past."""
    assert [name for name in sorted(names_in(path)) if not resolves(name)] == []


def test_names_in_docstrings_and_comments_exist() -> None:
    sources = [
        *ROOT.glob("rlsdk/**/*.py"),
        *ROOT.glob("plugins/*/src/**/*.py"),
        *ROOT.glob("contrib_algos/*/src/**/*.py"),
    ]
    named = {name: path for path in sources for name in names_in(path)}
    assert {name: str(path) for name, path in named.items() if not resolves(name)} == {}


def test_the_commands_in_the_table_of_names_exist() -> None:
    text = (ROOT / "docs/guides/coming-from-sb3-contrib.md").read_text()
    known = set(Commands())
    assert known.issuperset(re.findall(r"`rlsdk ([a-z]+)", text))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def contracts_page() -> str:
    lines = [
        "# Contracts",
        "",
        "The rules that every plugin must fulfill. `rlsdk check ID` checks all of them for an installed plugin, in a separate",
        "process; `rlsdk_testing.verify` checks one in this process ([how](writing-a-plugin.md#check-it)).",
        "For each clause `plugins/rlsdk-testing/tests/test_mutants.py` has a bug that only this clause finds. Of bugs that"
        f" somebody wrote without reading the clauses, they find {honest_number()}:",
        "[planted bugs](planted-bugs.md). Generated: `python -m tests.repository.test_docs`.",
        "",
        "| id | clause | to mend |",
        "|---|---|---|",
        *(f"| `{c.id}` | {_cell(c.statement)} | {_cell(c.remedy)} |" for c in clauses()),
    ]
    return "\n".join(lines) + "\n"


def test_the_page_of_contracts_is_current() -> None:
    assert (ROOT / "docs" / "contracts.md").read_text() == contracts_page(), "run: python -m tests.repository.test_docs"


def test_changelogs_name_the_versions() -> None:
    for package in (ROOT, *(path.parent for path in ROOT.glob("*/rlsdk-*/pyproject.toml"))):
        source = (package / "pyproject.toml").read_text()
        version_file = package / tomllib.loads(source)["tool"]["hatch"]["version"]["path"]
        (number,) = re.findall(r'__version__ = "(.+)"', version_file.read_text())
        assert f"## {number}" in (package / "CHANGELOG.md").read_text()


if __name__ == "__main__":
    (ROOT / "docs" / "contracts.md").write_text(contracts_page())
