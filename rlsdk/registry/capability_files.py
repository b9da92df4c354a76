"""The measured capabilities of a plugin, read from `capabilities.json` next to its manifest.

`rlsdk check ID --capabilities` writes that file.
"""

from __future__ import annotations

import json
from pathlib import Path

from rlsdk.registry.discovery import Plugin
from rlsdk.registry.manifest import ManifestError, package_folder
from rlsdk.runtime.plain_files import read_text

NAME = "capabilities.json"
LIMIT = 100
"""The file must have fewer tables and lists than this, so that parsing it cannot take long."""


def capabilities_file(plugin: Plugin) -> Path:
    """Return the path of the file beside the plugin's manifest, whether it exists or not. The package is not imported.

    Raises:
        ManifestError: the package cannot be found.
    """
    return package_folder(plugin.module) / NAME


def capabilities(plugin: Plugin) -> dict[str, object] | None:
    """Return the measured capabilities of a plugin: name -> bool, text or list of texts.

    None if nothing was measured or the file is damaged.
    """
    try:
        text = read_text(capabilities_file(plugin)) or ""
        found = json.loads(text) if text.count("{") + text.count("[") < LIMIT else None
    except (ValueError, ManifestError):
        return None
    return found if isinstance(found, dict) and all(map(_is_fact, found.values())) else None


def _is_fact(value: object) -> bool:
    words = value if isinstance(value, list) else [value]
    return isinstance(value, bool) or all(isinstance(word, str) and word.isprintable() for word in words)
