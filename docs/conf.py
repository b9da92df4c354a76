"""How the documentation site is built: `make docs`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import rlsdk

project, author, copyright = "rlsdk", "the rlsdk authors", "the rlsdk authors"  # noqa: A001  # Sphinx names it so
release = version = rlsdk.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"rlsdk {release}"
html_static_path = ["images"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_ambiguous"]

autodoc_default_options = {"members": True, "show-inheritance": False, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring, napoleon_numpy_docstring = True, False

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[\w-]+)?\)")
DOCS = Path(__file__).parent
ROOT = DOCS.parent
PACKAGES = sorted([*ROOT.glob("plugins/*/README.md"), *ROOT.glob("contrib_algos/*/README.md")])


def write_cards() -> None:
    """A page for each algorithm's package: its README."""
    (DOCS / "cards").mkdir(exist_ok=True)
    for readme in PACKAGES:
        card = DOCS / "cards" / f"{readme.parent.name.removeprefix('rlsdk-')}.md"
        text = f"```{{include}} ../../{readme.relative_to(ROOT)}\n```\n"
        if not card.exists() or card.read_text() != text:
            card.write_text(text)


def links_of_the_site(app: Any, docname: str, source: list[str]) -> None:
    """Pages are written for the repository: on the site, plugins are their cards, and code is its path."""
    source[0] = _linked(source[0], (DOCS / docname).parent, (DOCS / docname).parent)


def links_of_cards(app: Any, relative: Path, parent: str, content: list[str]) -> None:
    """A plugin's README, shown as its card, links from its own folder."""
    content[0] = _linked(content[0], (DOCS / relative).resolve().parent, DOCS / "cards")


def _linked(text: str, written: Path, shown: Path) -> str:
    """Links in a page that is `written` in one folder and `shown` in another."""

    def replaced(found: re.Match[str]) -> str:
        label, target, place = found[1], (written / found[2]).resolve(), found[3] or ""
        if target in PACKAGES:
            target = DOCS / "cards" / f"{target.parent.name.removeprefix('rlsdk-')}.md"
        if target.is_relative_to(DOCS):
            return f"[{label}]({os.path.relpath(target, shown)}{place})"
        path = target.relative_to(ROOT)
        return label if str(path) in label else f"{label} (`{path}`)"

    return LINK.sub(replaced, text)


def plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in them, not markup."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split(r"(`[^`]+`)", line)
            parts = [f"`{p}`" if p.startswith("`") and len(p) > 1 else re.sub(r"([*|])", r"\\\1", p) for p in parts]
            lines[number] = "".join(parts)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    write_cards()
    app.connect("autodoc-process-docstring", plain_text, priority=1)  # before the sections are read
    app.connect("source-read", links_of_the_site)
    app.connect("include-read", links_of_cards)
