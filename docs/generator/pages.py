"""Folders of generated pages: a page is written when it changed, and deleted when nothing writes it any more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_pages(folder: Path, pages: Mapping[str, str | bytes]) -> None:
    """Make a folder hold these pages (file name -> text, or the bytes of a picture) and no others; unchanged pages are not
    read again by Sphinx."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path, data = folder / name, text.encode() if isinstance(text, str) else text
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    for path in folder.iterdir():
        if path.is_file() and path.name not in pages:
            path.unlink()


def heading(text: str, line: str = "=") -> str:
    """A heading in reStructuredText."""
    return f"{text}\n{line * len(text)}\n\n"
