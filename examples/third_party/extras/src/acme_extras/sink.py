"""A metric sink: an object with `write` and `close`. A sink for a tracking service has the same methods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


class BestValues:
    """Writes the largest value of every metric to `best.json` in the run directory when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.best = folder / "best.json", dict[str, tuple[float, int]]()

    def write(self, step: int, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float) and (name not in self.best or value > self.best[name][0]):
                self.best[name] = float(value), step

    def close(self) -> None:
        context = {name: {"value": value, "step": step} for name, (value, step) in sorted(self.best.items())}
        self.path.write_text(json.dumps(context, indent=1))
