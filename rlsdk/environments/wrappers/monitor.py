"""Writes the return and length of every episode to a CSV file."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from rlsdk.errors import SettingsError, UsageError

SUFFIX = "monitor.csv"
COLUMNS = ("r", "l", "t")


class Monitor(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds `info["episode"] = {"r": return, "l": length, "t": seconds}` at an episode's end, and a row to `filename`.

    The file begins with a comment line of JSON (`t_start`, `env_id`), then a header. An existing file is continued.
    With `allow_early_resets=False` a reset in mid-episode raises.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        filename: str | Path | None = None,
        allow_early_resets: bool = True,
        info_keywords: Sequence[str] = (),
    ) -> None:
        arguments: dict[str, Any] = {"allow_early_resets": allow_early_resets, "info_keywords": info_keywords}
        RecordConstructorArgs.__init__(self, filename=filename, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self.allow_early_resets, self.info_keywords = allow_early_resets, tuple(info_keywords)
        self.path = None if filename is None else _path(Path(filename))
        self._began, self._rewards = time.time(), list[float]()
        self._over = True
        if self.path is not None:
            self._prepare(self.path)

    def _prepare(self, path: Path) -> None:
        columns = [*COLUMNS, *self.info_keywords]
        if path.exists():
            with path.open(newline="", encoding="utf-8") as stream:
                facts, header = stream.readline(), next(csv.reader(stream), [])
            if header != columns:
                raise SettingsError(
                    f"{path} has the columns {header}, this monitor writes {columns}; choose another file"
                )
            self._began = float(json.loads(facts[1:])["t_start"])
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        with path.open("w", newline="", encoding="utf-8") as stream:
            stream.write(f"#{json.dumps({'t_start': self._began, 'env_id': name})}\n")
            csv.writer(stream).writerow(columns)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if not self.allow_early_resets and not self._over and self._rewards:
            raise UsageError("the episode is not over; play it to its end, or pass allow_early_resets=True")
        self._rewards, self._over = [], False
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._over:
            raise UsageError("the episode is over; call reset before step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._rewards.append(float(reward))
        if terminated or truncated:
            self._over = True
            info = {**info, "episode": self._finish(info)}
        return observation, reward, terminated, truncated, info

    def _finish(self, info: dict[str, Any]) -> dict[str, Any]:
        seconds = round(time.time() - self._began, 6)
        row = {"r": round(sum(self._rewards), 6), "l": len(self._rewards), "t": seconds}
        if missing := [name for name in self.info_keywords if name not in info]:
            raise SettingsError(
                f"info of the last step lacks {missing}, which info_keywords asks for; it has {sorted(info)}"
            )
        row |= {name: info[name] for name in self.info_keywords}
        if self.path is not None:
            with self.path.open("a", newline="", encoding="utf-8") as stream:
                csv.DictWriter(stream, list(row)).writerow(row)
        return row


def _path(name: Path) -> Path:
    """`folder` -> folder/monitor.csv, `name` -> name.monitor.csv, a name that ends so stays."""
    if name.is_dir():
        return name / SUFFIX
    return name if name.name.endswith(SUFFIX) else name.with_name(f"{name.name}.{SUFFIX}")


def load_results(folder: str | Path) -> dict[str, list[float]]:
    """Columns `r`, `l` and `t` of all monitor files in a folder together, in the order episodes ended.

    Raises:
        SettingsError: the folder holds none.
    """
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise SettingsError(f"{folder} holds no *{SUFFIX} file")
    rows: list[tuple[float, float, float]] = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as stream:
            start = float(json.loads(stream.readline()[1:])["t_start"])
            rows += [(start + float(row["t"]), float(row["r"]), float(row["l"])) for row in csv.DictReader(stream)]
    rows.sort()
    first = rows[0][0] if rows else 0.0
    return {"r": [r for _, r, _ in rows], "l": [length for *_, length in rows], "t": [t - first for t, *_ in rows]}
