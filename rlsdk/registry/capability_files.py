"""The measured capabilities of a plugin: `capabilities.json` beside its manifest, from `rlsdk check ID --capabilities`."""

from __future__ import annotations

import json

from rlsdk.registry.discovery import Plugin
from rlsdk.registry.manifest import ManifestError, package_folder
from rlsdk.registry.plain_files import read_text

NAME = "capabilities.json"
LIMIT = 100
"""Tables and lists in it."""


def capabilities(plugin: Plugin) -> dict[str, object] | None:
    """The measured capabilities: switches, words and lists of words; None where none were measured, or the file is damaged."""
    try:
        text = read_text(package_folder(plugin.module) / NAME) or ""
        found = json.loads(text) if text.count("{") + text.count("[") < LIMIT else None
    except (ValueError, ManifestError):
        return None
    return found if isinstance(found, dict) and all(map(_is_fact, found.values())) else None


def _is_fact(value: object) -> bool:
    words = value if isinstance(value, list) else [value]
    return isinstance(value, bool) or all(isinstance(word, str) and word.isprintable() for word in words)
