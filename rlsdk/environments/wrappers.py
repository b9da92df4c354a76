"""A wrapper that writes the return and the length of every episode to a CSV file."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsFloat, TypeVar

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from rlsdk.environments.adapters.attributes import name_of, named
from rlsdk.environments.adapters.step_checks import LARGEST_INT, NUMBERS, number, require_info
from rlsdk.errors import ArtifactError, EnvironmentFault, SettingsError, UsageError, require_file_name
from rlsdk.runtime.whole_files import append_whole, write_whole

SUFFIX = "monitor.csv"
COLUMNS = ("r", "l", "t")
ResultT = TypeVar("ResultT")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}; choose a writable place with free space"
        ) from None


def _row(values: Iterable[object]) -> str:
    """One line of a table in CSV, with its end."""
    line = io.StringIO(newline="")
    csv.writer(line).writerow(values)
    return line.getvalue()


class Monitor(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds `info["episode"] = {"r": return, "l": length, "t": seconds}` at an episode's end, and a row to `filename`.

    The file begins with a comment line of JSON (`t_start`, `env_id`), then a header. Rows are appended to an existing file,
    unless `override_existing`. With `allow_early_resets=False`, a reset in the middle of an episode raises UsageError.
    `reset_keywords` are names of arguments that each call of `reset` must have. `info_keywords` are names of entries in the
    info of the last step. Both are written to the rows.
    """

    def __init__(
        self,
        env: gymnasium.Env[object, object],
        filename: str | Path | None = None,
        allow_early_resets: bool = True,
        reset_keywords: Sequence[str] = (),
        info_keywords: Sequence[str] = (),
        override_existing: bool = False,
    ) -> None:
        arguments: dict[str, Any] = {"allow_early_resets": allow_early_resets, "info_keywords": info_keywords}
        arguments |= {"reset_keywords": reset_keywords, "override_existing": override_existing}
        RecordConstructorArgs.__init__(self, filename=filename, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self.allow_early_resets, self.info_keywords = allow_early_resets, tuple(info_keywords)
        self.reset_keywords, self._reset_values = tuple(reset_keywords), dict[str, object]()
        self.path = None if filename is None else _path(Path(filename))
        self._began, self._rewards = time.time(), list[float]()
        self._over, self._episodes, self._total = True, list[dict[str, float]](), 0
        if self.path is not None:
            with _writing(self.path):
                self._prepare(self.path, override_existing)

    def _prepare(self, path: Path, override: bool) -> None:
        columns = [*COLUMNS, *self.reset_keywords, *self.info_keywords]
        if path.exists() and not override:
            with path.open(newline="", encoding="utf-8", errors="replace") as stream:
                context, header = stream.readline(), next(csv.reader(stream), [])
            if header != columns:
                raise SettingsError(
                    f"{path} has the columns {header}, this monitor writes {columns}; choose another file"
                )
            self._began = _began(context, path)
            return
        context = json.dumps({"t_start": self._began, "env_id": name_of(self.env)})
        write_whole(path, f"#{context}\n{_row(columns)}".encode())

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        if not self.allow_early_resets and not self._over and self._rewards:
            raise UsageError("the episode is not over; play it to its end, or pass allow_early_resets=True")
        if missing := [name for name in self.reset_keywords if name not in kwargs]:
            raise UsageError(f"reset needs {missing}, which reset_keywords names")
        self._reset_values = {name: kwargs[name] for name in self.reset_keywords}
        self._rewards, self._over = [], False
        return self.env.reset(**{name: value for name, value in kwargs.items() if name not in self.reset_keywords})

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        if self._over:
            raise UsageError("the episode is over; call reset before step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        huge = isinstance(reward, int) and abs(reward) > LARGEST_INT
        self._rewards.append(self._checked(number, reward) if huge or type(reward) not in NUMBERS else float(reward))
        self._total += 1
        if terminated or truncated:
            self._over = True
            self._checked(require_info, info)
            info = {**info, "episode": self._finish(info)}
        return observation, reward, terminated, truncated, info

    def _checked(self, check: Callable[[object], ResultT], value: object) -> ResultT:
        """`check(value)`; its error names the environment."""
        try:
            return check(value)
        except EnvironmentFault as error:
            raise EnvironmentFault(f"environment {named(self.env)} {error}") from None

    def _finish(self, info: dict[str, object]) -> dict[str, object]:
        seconds = round(time.time() - self._began, 6)
        result = {"r": round(sum(self._rewards), 6), "l": len(self._rewards), "t": seconds}
        if missing := [name for name in self.info_keywords if name not in info]:
            raise SettingsError(
                f"info of the last step lacks {missing}, which info_keywords names; it has {sorted(info)}"
            )
        self._episodes.append(result)
        row = {**result, **self._reset_values, **{name: info[name] for name in self.info_keywords}}
        if self.path is not None:
            with _writing(self.path):
                append_whole(self.path, _row(row.values()).encode())
        return row

    def get_total_steps(self) -> int:
        """The number of steps over all episodes."""
        return self._total

    def get_episode_rewards(self) -> list[float]:
        """The return of every finished episode."""
        return [row["r"] for row in self._episodes]

    def get_episode_lengths(self) -> list[int]:
        """The number of steps of every finished episode."""
        return [int(row["l"]) for row in self._episodes]

    def get_episode_times(self) -> list[float]:
        """The time at which every finished episode ended, in seconds since the monitor was made or its file was started."""
        return [row["t"] for row in self._episodes]

    def get_state(self) -> dict[str, object]:
        """The state of the running episode and the number of steps. It has neither the finished episodes nor the file."""
        return {"rewards": list(self._rewards), "over": self._over, "total": self._total}

    def set_state(self, state: Any) -> None:
        """Restore a state from `get_state`."""
        self._rewards = [float(reward) for reward in state["rewards"]]
        self._over, self._total = bool(state["over"]), int(state["total"])


def _began(context: str, path: Path) -> float:
    """When the monitor of an existing file began, from its first line.

    Raises:
        SettingsError: no monitor wrote it.
    """
    try:
        return float(json.loads(context[1:])["t_start"])
    except (ValueError, KeyError, TypeError):
        raise SettingsError(
            f"{path} was not written by a monitor: its first line has no JSON with t_start; choose another file, or pass"
            " override_existing=True"
        ) from None


def _path(name: Path) -> Path:
    """The path of the monitor file: folder/monitor.csv for a folder, else `name` with the suffix .monitor.csv if missing."""
    require_file_name(name)
    if name.is_dir():
        return name / SUFFIX
    return name if name.name.endswith(SUFFIX) else name.with_name(f"{name.name}.{SUFFIX}")
