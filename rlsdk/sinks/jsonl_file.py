"""A sink that writes metrics to a file of JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from rlsdk.sinks.last_line import LastLine
from rlsdk.sinks.place import made
from rlsdk.sinks.sink import Sink
from rlsdk.sinks.values import listed


class JsonlSink(Sink):
    """Appends one JSON object per step to the file `path`. NaN and infinity become null: JSON cannot represent them."""

    format = "json"

    def __init__(self, path: str | Path) -> None:
        """Makes the folder if need be; raises SettingsError where that is not possible."""
        self.path = made(Path(path).parent) / Path(path).name
        self._last = LastLine(self.path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._write(step, {name: value if math.isfinite(value) else None for name, value in values.items()})

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Write the texts, Nones and arrays of at most 1,000 entries, and return their names."""
        known = {name: value if isinstance(value, str) else listed(value) for name, value in values.items()}
        plain = {name: value for name, value in known.items() if value is not None or values[name] is None}
        if plain:
            self._write(step, plain)
        return list(plain)

    def _write(self, step: int, values: Mapping[str, object]) -> None:
        row = {"step": step, **self._last.merge(step, values)}
        self._last.write(json.dumps(row, allow_nan=False) + "\n")
