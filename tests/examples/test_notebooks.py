"""The notebooks run from the first cell to the last. They are stored without outputs, which would become outdated."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))}
QUICK = ("masks_and_memories",)


def sources(name: str, kind: str) -> list[str]:
    cells = nbformat.read(NOTEBOOKS[name], as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


def test_there_are_three() -> None:
    assert set(NOTEBOOKS) == {"first_agent", "masks_and_memories", "writing_a_plugin"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_valid_and_has_no_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
    for text in sources(name, "code"):
        ast.parse(text)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_installs_from_the_repository_and_its_links_lead_somewhere(name: str) -> None:
    text = "\n".join(sources(name, "markdown"))
    (line,) = re.findall("`pip install (.*)`", text.partition("\n## ")[0])
    assert [place for place in re.findall(r"\./\S+", line) if not (ROOT / place / "pyproject.toml").exists()] == []
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (NOTEBOOKS[name].parent / link).exists()] == []


@pytest.mark.full
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NOTEBOOKS])
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
    pictures = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert pictures
