"""The notebooks run from the first cell to the last. Their stored outputs are those of their present code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from docs.generator.notebooks import (
    code_cells,
    fingerprint,
    from_page,
    outputs,
    source_of,
    stored,
    tutorial,
    with_outputs,
)

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))}
QUICK = ("masks_and_memories",)


def sources(name: str, kind: str) -> list[str]:
    cells = nbformat.read(NOTEBOOKS[name], as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


def test_which_there_are() -> None:
    assert set(NOTEBOOKS) == {"first_agent", "masks_and_memories", "writing_a_plugin", *tutorial()}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_valid_and_its_outputs_are_of_its_code(name: str) -> None:
    nbformat.validate(nbformat.read(NOTEBOOKS[name], as_version=4))
    notebook = stored(name)
    assert notebook["metadata"]["rlsdk"]["code"] == fingerprint(notebook), f"python -m docs.generator.notebooks {name}"
    code = code_cells(notebook)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert kinds
    assert "error" not in kinds
    assert re.findall("Traceback|not found|No such", json.dumps([cell["outputs"] for cell in code])) == []


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in tutorial()])
def test_its_code_is_python(name: str) -> None:
    for text in sources(name, "code"):
        ast.parse(text)


@pytest.mark.parametrize("name", tutorial())
def test_a_notebook_of_the_tutorial_is_its_page(name: str) -> None:
    kinds_and_texts = [(cell["cell_type"], source_of(cell)) for cell in from_page(tutorial()[name])["cells"]]
    found = [(cell["cell_type"], source_of(cell)) for cell in stored(name)["cells"]]
    assert found == kinds_and_texts, f"python -m docs.generator.notebooks {name}"


def test_a_page_shows_the_outputs_below_their_blocks() -> None:
    output = {"output_type": "stream", "name": "stdout", "text": ["\x1b[1m3\x1b[0m\n"]}
    cells = [
        {"cell_type": "code", "source": ["print(3)"], "outputs": [output]},
        {"cell_type": "code", "source": "", "outputs": []},
    ]
    shown = with_outputs("Add.\n```python\nprint(3)\n```\n\n```sh\nls\n```\n\n```\nrlsdk list\n```\n", {"cells": cells})
    assert shown == (
        "Add.\n```python\nprint(3)\n```\n\n```{code-block} text\n:class: output\n\n3\n```\n"
        "\n```sh\nls\n```\n\n```\nrlsdk list\n```\n"
    )
    many = {"outputs": [{"output_type": "stream", "text": "".join(f"{number}\n" for number in range(999))}]}
    ((text, picture),) = outputs(many)
    assert text.startswith("0\n1\n")
    assert text.endswith("\n997\n998\n")
    assert len(text.splitlines()) == 121
    assert picture is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_installs_from_the_repository_and_its_links_lead_somewhere(name: str) -> None:
    text = "\n".join(sources(name, "markdown"))
    (line,) = re.findall("^`?pip install ([^`\n]*)", text.partition("\n## ")[0], re.MULTILINE)
    assert [place for place in re.findall(r"\./[\w/-]+", line) if not (ROOT / place / "pyproject.toml").exists()] == []
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (NOTEBOOKS[name].parent / link).exists()] == []


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    # tests/docs runs the blocks of the tutorial's pages
    [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NOTEBOOKS if n not in tutorial()],
)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the notebook in a temporary folder and without a network. Builds use the packages of this environment."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it as "no isolation"
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        startup_timeout=180,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    before, now = (
        [[sorted(output["data"]) for output in cell["outputs"] if "data" in output] for cell in code_cells(each)]
        for each in (stored(name), notebook)
    )
    assert now == before, "the stored outputs are of another kind"
    assert "image/png" in str(now)
