"""Folders of generated pages: a page is written when it changed, and deleted when nothing writes it any more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Make a folder hold these pages (file name -> text) and no others; unchanged pages are not read again by Sphinx."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.iterdir():
        if path.is_file() and path.name not in pages:
            path.unlink()


def heading(text: str, line: str = "=") -> str:
    """A heading in reStructuredText."""
    return f"{text}\n{line * len(text)}\n\n"
