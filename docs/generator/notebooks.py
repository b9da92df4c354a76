"""Notebooks with the outputs of their cells: those of the tutorial are made from its pages, and all are pages of the site.

python -m docs.generator.notebooks [NAME ...]     run notebooks whose code has changed, and store the outputs; all without
NAME. `--again` runs them also if their code has not changed. Needs nbclient.

A page of the tutorial is the source of its notebook: texts become cells of text; Python, and commands that tests run, become
cells of code. On the site, each block of such a page has the outputs that its cell had.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.generator.pages import write_pages

ROOT = Path(__file__).parents[2]
NOTEBOOKS, TUTORIAL = ROOT / "examples" / "notebooks", ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
RUN = ("python", "")
"""The languages of blocks that tests run; those without one are commands."""
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONGEST = 120
"""Lines of an output that a page shows."""
Notebook = dict[str, Any]
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def stored(name: str) -> Notebook:
    """Read a notebook."""
    return dict(json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")))


def source_of(cell: Mapping[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    """The cells with code, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def fingerprint(notebook: Notebook) -> str:
    """The hash of the code, which a notebook stores when its outputs are made."""
    return hashlib.sha256("\0".join(map(source_of, code_cells(notebook))).encode()).hexdigest()


# --- the tutorial ----------------------------------------------------------------------------------------------------


def tutorial() -> dict[str, Path]:
    """Notebook -> its page."""
    return {f"tutorial_{page.stem.replace('-', '_')}": page for page in sorted(TUTORIAL.glob("*.md"))}


def from_page(page: Path) -> Notebook:
    """The notebook of a page of the tutorial, without outputs."""
    text = page.read_text(encoding="utf-8")
    cells: list[dict[str, Any]] = []
    at = 0
    for block in (found for found in BLOCK.finditer(text) if found[1] in RUN):
        cells.append(_cell("markdown", _linked(text[at : block.start()], page)))
        # a line of the shell, in a cell of Python
        code = block[2] if block[1] else re.sub(r"^(?=.)", "!", block[2], flags=re.MULTILINE)
        cells.append({**_cell("code", code), "execution_count": None, "outputs": []})
        at = block.end()
    cells.append(_cell("markdown", _linked(text[at:], page)))
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells) if cell["source"]]
    return {"cells": numbered, "metadata": dict(KERNEL), "nbformat": 4, "nbformat_minor": 5}


def _linked(text: str, page: Path) -> str:
    """Links of a page, from the folder of the notebooks."""
    return LINK.sub(lambda link: f"]({os.path.relpath(page.parent / link[1], NOTEBOOKS)}", text)


def _cell(kind: str, text: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text.strip("\n").splitlines(keepends=True)}


def with_outputs(page: str, notebook: Notebook) -> str:
    """The text of a page of the tutorial, with the outputs of each block below it."""
    cells = iter(code_cells(notebook))
    return BLOCK.sub(lambda block: block[0] + (_texts(next(cells, {"outputs": []})) if block[1] in RUN else ""), page)


def _texts(cell: Mapping[str, Any]) -> str:
    found = "".join(text for text, _ in outputs(cell))
    return f"\n{_shown(found)}" if found.strip() else ""


def _shown(text: str) -> str:
    """The text of an output, which the site marks with a line at its side."""
    return f"```{{code-block}} text\n:class: output\n\n{text.rstrip()}\n```\n"


# --- pages of the site -----------------------------------------------------------------------------------------------


def write_notebooks(folder: Path) -> None:
    """A page for each notebook that is not made from a page."""
    pages: dict[str, str | bytes] = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if path.stem not in tutorial():
            pages.update(_page(path.stem))
    write_pages(folder, pages)


def _page(name: str) -> Iterator[tuple[str, str | bytes]]:
    """The files of a page: its text and the pictures of its outputs."""
    text = ""
    for number, cell in enumerate(stored(name)["cells"]):
        written = source_of(cell)
        if cell["cell_type"] == "markdown":
            text += written.replace(".ipynb)", ".md)") + "\n\n"
            continue
        text += f"```python\n{written}\n```\n\n"
        for shown, picture in outputs(cell):
            if picture is None:
                text += f"{_shown(shown)}\n"
            else:
                file = f"{name}-{number}.png"
                yield file, picture
                text += f"```{{image}} {file}\n:alt: The plot that the code above draws.\n:class: on-white\n```\n\n"
    yield f"{name}.md", text


def outputs(cell: Mapping[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    """Text, or a PNG picture, of each output of a cell, without warnings. Long texts are cut in the middle."""
    for output in (each for each in cell["outputs"] if each.get("name") != "stderr"):
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            yield "", base64.b64decode("".join(data["image/png"]))
            continue
        lines = ESCAPE.sub("", "".join(data["text/plain"])).splitlines()
        if len(lines) > LONGEST:
            lines = [*lines[: LONGEST // 2], "...", *lines[-LONGEST // 2 :]]
        yield "".join(f"{line}\n" for line in lines), None


# --- execution -------------------------------------------------------------------------------------------------------


def run(name: str, *, again: bool = False) -> None:
    """Run a notebook in an empty folder, and store it with its outputs. Those of the same code are only made `again`."""
    import nbclient
    import nbformat

    notebook = from_page(tutorial()[name]) if name in tutorial() else stored(name)
    read: Any = nbformat.reads(json.dumps(notebook), as_version=4)  # type: ignore[no-untyped-call]
    before = stored(name) if (NOTEBOOKS / f"{name}.ipynb").exists() else notebook
    if not again and before["metadata"].get("rlsdk") == {"code": fingerprint(read)}:
        for cell, known in zip(code_cells(read), code_cells(before), strict=True):
            cell.update(nbformat.from_dict({key: known[key] for key in ("outputs", "execution_count")}))  # type: ignore[no-untyped-call]
    else:
        with tempfile.TemporaryDirectory() as folder:
            place = {"metadata": {"path": folder}}
            # the commands of this environment; a window system is not needed
            os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            os.environ["SDL_VIDEODRIVER"] = "dummy"
            nbclient.NotebookClient(
                read, timeout=1200, kernel_name="python3", resources=place, coalesce_streams=True
            ).execute()
    for cell in read.cells:
        cell.metadata.clear()  # the times of execution
    read.metadata = nbformat.from_dict({**KERNEL, "rlsdk": {"code": fingerprint(read)}})  # type: ignore[no-untyped-call]
    # the build of a kernel is long, and of no interest
    text = nbformat.writes(read).replace(platform.platform(), platform.system())  # type: ignore[no-untyped-call]
    (NOTEBOOKS / f"{name}.ipynb").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m docs.generator.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a notebook")
    parser.add_argument("--again", action="store_true", help="run them also if their code has not changed")
    every = [*(path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.stem not in tutorial()), *tutorial()]
    arguments = parser.parse_args()
    for name in arguments.names or every:
        run(name, again=arguments.again)
        print(name, flush=True)


if __name__ == "__main__":
    main()
