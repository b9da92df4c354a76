"""How the documentation site is built: `make docs`."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from pygments.lexers import BashLexer
from pygments.token import Error

import rlsdk

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs.generator.cards import short_name, write_cards
from docs.generator.commands import write_commands
from docs.generator.notebooks import NOTEBOOKS, stored, tutorial, with_outputs, write_notebooks
from docs.generator.reference import write_reference
from docs.generator.signatures import shown_signature, skipped_member

DOCS = Path(__file__).parent
ROOT = DOCS.parent
project, author, copyright = "rlsdk", "the rlsdk authors", "the rlsdk authors"  # noqa: A001  # Sphinx names it so
release = version = rlsdk.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "reference/index.md", "commands/index.md"]
html_theme = "furo"
html_title = f"rlsdk {release}"
if repository := tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {}).get("Repository"):
    # the one place that names the repository; without it the pages have no link
    html_theme_options = {"source_repository": repository, "source_branch": "main", "source_directory": "docs/"}
html_use_index = False  # the search finds more, and pages of names are wide
smartquotes = False  # options such as --out are written with two hyphens
html_static_path = ["images", "style"]
html_css_files = ["rlsdk.css"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_ambiguous", "ref.python"]  # types of the same name in several modules

autodoc_default_options = {
    "members": True,
    "undoc-members": True,  # what a method of a protocol does is written once, at the protocol
    "member-order": "bysource",
}
autodoc_inherit_docstrings = False  # those of gymnasium and torch are written in other markup
autoclass_content = "both"  # constructors of algorithms are documented at __init__
autodoc_typehints, autodoc_typehints_format = "signature", "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries = False  # names have headings; entries of methods make every page slow
napoleon_google_docstring, napoleon_numpy_docstring = True, False

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^(?:[A-Z_]+=\S+ )*(?:rlsdk|pip|python|make|docker|git|conda|jupyter|sudo|cd|export) ", re.MULTILINE
)
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[\w-]+)?\)")
PACKAGES = sorted([*ROOT.glob("plugins/*/README.md"), *ROOT.glob("contrib_algos/*/README.md")])


def links_of_the_site(app: Any, docname: str, source: list[str]) -> None:
    """Pages are written for the repository: on the site, plugins are their cards, and code is its path."""
    if docname.startswith("decisions/"):  # decisions are not edited, and the sections they link to moved
        source[0] = source[0].replace("](../performance.md#", "](0070-the-history-of-the-speed.md#")
    for notebook, page in tutorial().items():
        if page == DOCS / f"{docname}.md":
            source[0] = with_outputs(source[0], stored(notebook))
    shown = (DOCS / docname).parent
    written = NOTEBOOKS if docname.startswith("notebooks/") else shown
    source[0] = _colored(_linked(source[0], written, shown))


def links_of_cards(app: Any, relative: Path, parent: str, content: list[str]) -> None:
    """A plugin's README, shown as its card, links from its own folder."""
    content[0] = _colored(_linked(content[0], (DOCS / relative).resolve().parent, DOCS / "cards"))


def _colored(text: str) -> str:
    """Blocks without a language are commands of the shell, or plain text."""

    def named(found: re.Match[str]) -> str:
        language = found[1] or ("shell" if _is_shell(found[2]) else "text")
        return f"```{language}\n{found[2]}```"

    return FENCE.sub(named, text)


def _linked(text: str, written: Path, shown: Path) -> str:
    """Links in a page that is `written` in one folder and `shown` in another."""

    def replaced(found: re.Match[str]) -> str:
        label, target, place = found[1], (written / found[2]).resolve(), found[3] or ""
        if target in PACKAGES:
            target = DOCS / "cards" / f"{short_name(target)}.md"
        if target.parent == NOTEBOOKS and target.suffix == ".ipynb":
            target = tutorial().get(target.stem, DOCS / "notebooks" / f"{target.stem}.md")
        if target.is_relative_to(DOCS):
            return f"[{label}]({os.path.relpath(target, shown)}{place})"
        path = target.relative_to(ROOT)
        return label if str(path) in label else f"{label} (`{path}`)"

    return LINK.sub(replaced, text)


TEXTS: dict[str, list[str]] = {}
"""The text of an attribute or a property, set aside while sections are read: a colon in it does not mark a type."""


def _is_shell(text: str) -> bool:
    """Whether a block has commands, and nothing that the shell would not read."""
    return bool(COMMAND.search(text)) and all(kind is not Error for kind, _ in BashLexer().get_tokens(text))


def plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in them, not markup; a constant has none of its own."""
    if what == "data":
        lines.clear()
    lines[:] = [line for line in lines if not line.startswith("Method generated by attrs for class ")]
    if what == "class" and issubclass(obj, rlsdk.Agent) and "Args:" in lines:
        del lines[lines.index("Args:") :]  # its card has a table of them
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split(r"(`[^`]+`)", line)
            parts = [f"`{p}`" if p.startswith("`") and len(p) > 1 else re.sub(r"([*|])", r"\\\1", p) for p in parts]
            lines[number] = "".join(parts)
    if what in ("attribute", "property"):
        TEXTS[name] = list(lines)
        lines.clear()


def text_of_attributes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """After the sections were read."""
    lines += TEXTS.pop(name, [])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    write_cards(DOCS / "cards", PACKAGES)
    write_commands(DOCS / "commands")
    write_reference(DOCS / "reference")
    write_notebooks(DOCS / "notebooks")
    app.connect("autodoc-skip-member", skipped_member)
    app.connect("autodoc-process-signature", shown_signature)
    app.connect("autodoc-process-docstring", plain_text, priority=1)  # before the sections are read
    app.connect("autodoc-process-docstring", text_of_attributes, priority=900)
    app.connect("source-read", links_of_the_site)
    app.connect("include-read", links_of_cards)
