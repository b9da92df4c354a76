"""What a plugin was seen to be able to do: `capabilities.json` beside its manifest, from `rlsdk check ID --capabilities`."""

from __future__ import annotations

import json
from typing import Any

from rlsdk.registry.discovery import Plugin
from rlsdk.registry.manifest import ManifestError, package_folder

NAME = "capabilities.json"


def capabilities(plugin: Plugin) -> dict[str, Any] | None:
    """The facts; None where none were measured."""
    try:
        found = json.loads((package_folder(plugin.module) / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, ManifestError):
        return None
    return found if isinstance(found, dict) else None
