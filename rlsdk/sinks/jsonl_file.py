"""Metrics as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path


class JsonlSink:
    """Appends one JSON object per log to `path`; values that are not finite become null, as JSON cannot represent them."""

    format = "json"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Write texts, on a line of their own; returns their names."""
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        if texts:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"step": step, **texts}) + "\n")
        return list(texts)

    def close(self) -> None:
        """Every line is on disk already."""
