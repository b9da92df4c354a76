"""The folder that a run of the command line writes.

config.toml        every setting of the run, with comments; `rlsdk run ALGO --config config.toml` repeats the run
run.json           algorithm, environment, steps, seed, versions, status
metrics.csv        metrics by step        metrics.jsonl   the same as JSON lines
checkpoints/       step_000010000.rlsdk ...: everything training needs to continue
best.rlsdk         the agent with the best evaluation       final.rlsdk   the agent at the end
learning_curve.png (with rlsdk-lab and matplotlib)
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rlsdk.callbacks.checkpoint import replay_folder
from rlsdk.callbacks.earlier_training import set_aside
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.experiments.folder_kinds import RUN, require_kind
from rlsdk.experiments.lock import claimed
from rlsdk.experiments.made_here import record_made_here, sealed
from rlsdk.experiments.metrics_file import MAX_METRICS, read_metric
from rlsdk.experiments.run_record import RunRecord
from rlsdk.experiments.stored_tables import read_text
from rlsdk.experiments.trust import asks_for_trust
from rlsdk.runtime.output import print_line
from rlsdk.runtime.whole_files import write_json, write_whole
from rlsdk.settings import commented_toml

T = TypeVar("T")


def folder_name(env: str) -> str:
    """Return an environment id as part of a path. Characters other than letters, digits, -, _ and . become -.

    Of `/path/to/my_env.py:MyEnv` it is `my_env.py-MyEnv`.
    """
    short = re.sub(r"^[^?]*[/\\](?=[^/\\?]*\.py:)", "", env)
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in short)


class RunDirectory:
    """The paths and records of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.csv, self.jsonl = path / "metrics.csv", path / "metrics.jsonl"
        self.config, self.record = path / "config.toml", path / RUN
        self.best, self.final = path / "best.rlsdk", path / "final.rlsdk"

    @staticmethod
    def choose(out: Path | None, algorithm: str, env: str, seed: int) -> RunDirectory:
        """Return the directory `out`, or a new one under runs/ named after the algorithm, environment, seed and time."""
        if out is not None:
            return RunDirectory(out)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return RunDirectory(Path("runs") / algorithm / f"{folder_name(env)}-seed{seed}-{stamp}")

    @contextmanager
    def created(self, kind: str = RUN) -> Iterator[None]:
        """Create the folder and lock it inside the block. An earlier run in it that left no agent is replaced.

        Raises:
            SettingsError: the folder cannot be written, a run is running in it, it contains a run, or a command whose file is
                not `kind` wrote into it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SettingsError(f"cannot write into {self.path}: {error.strerror}; choose another --out") from None
        with claimed(self.path):
            require_kind(self.path, kind)
            if self.record.exists():
                if any(self.path.rglob("*.rlsdk")):
                    raise SettingsError(
                        f"{self.path} already holds a run; add --resume to continue it, or choose another --out"
                    )
                print_line(f"{self.path} holds a run that left no agent; starting again")
                self.start_over()
            elif left := self._traces():
                raise SettingsError(
                    f"{self.path} holds {left[0].relative_to(self.path)} but no {self.record.name}, so a new run would mix with"
                    f" what is there; choose another --out, or restore {self.record.name} and add --resume"
                )
            yield

    @contextmanager
    def taken_up(self) -> Iterator[None]:
        """Lock the folder of an existing run inside the block.

        Raises:
            SettingsError: the folder contains no run, or a run is running in it.
        """
        if not self.record.is_file():
            raise SettingsError(f"{self.path} holds no run to resume ({self.record.name} is missing)")
        with claimed(self.path):
            yield

    def written(self) -> list[Path]:
        """Return the existing paths that a run writes to."""
        return [
            path
            for folder in (self.path, self.checkpoints, replay_folder(self.checkpoints))
            for path in _entries(folder)
        ]

    def worth_storing(self) -> list[Path]:
        """Return the files that sinks store: settings, agents, videos."""
        videos = (path for suffix in ("*.mp4", "*.gif") for path in sorted(self.path.glob(suffix)))
        return [path for path in (self.config, self.best, self.final, *videos) if path.is_file()]

    def write_config(self, kind: type[object], values: dict[str, object], header: str) -> None:
        """Write the settings of a new run as a file that `rlsdk run --config` accepts. A file with others moves aside."""
        data = commented_toml(kind, values, header=header).encode()
        if self.config.exists() and self.config.read_bytes() != data:
            set_aside([self.config])
        write_whole(self.config, data)

    def write_record(self, record: RunRecord) -> None:
        """Replace run.json atomically. It is sealed if it names what only the user may choose, such as an own environment."""
        table, executors = record.as_table(), (record.executor, record.vectorization)
        asks = asks_for_trust(record.env, record.places, self.path, executors)
        write_json(self.record, sealed(self.record, table) if asks else table)

    def needs_trust(self) -> bool:
        """Whether this run is refused without `--trust` although it was made here: there was no place for a key."""
        record = self.read_record()
        asks = asks_for_trust(record.env, record.places, self.path, (record.executor, record.vectorization))
        return asks and record_made_here(self.record) is None

    def read_record(self) -> RunRecord:
        """Return the content of run.json.

        Raises:
            SettingsError: the file is missing or damaged.
        """
        return RunRecord.read(self.record)

    def forget_after(self, step: int) -> None:
        """Remove logged metrics after `step`. A resumed run logs the steps after its last checkpoint again."""
        for path in (self.csv, self.jsonl):
            if path.exists():
                lines = read_text(path, MAX_METRICS).splitlines(keepends=True)
                earlier = [line for line in lines if (_step_of(line) or 0) <= step]
                write_whole(path, "".join(earlier).encode())

    def best_evaluation(self) -> float:
        """Return the highest mean return of an evaluation of this run; minus infinity before the first evaluation."""
        if not self.csv.exists():
            return float("-inf")
        return max(read_metric(self.csv, "eval/mean_reward")[1], default=float("-inf"))

    @property
    def checkpointed(self) -> bool:
        """Whether there is a checkpoint from which the run can be resumed."""
        return self.record.exists() and any(self.checkpoints.glob("step_*.rlsdk"))

    @property
    def trained_steps(self) -> int:
        """The steps at the newest checkpoint, according to its name; 0 if there is none."""
        names = (path.stem.removeprefix("step_") for path in self.checkpoints.glob("step_*.rlsdk"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def _traces(self) -> list[Path]:
        """Return files of an earlier run that a new run would extend or mistake for its own."""
        own = (self.csv, self.jsonl, self.best, self.final)
        return [path for path in own if path.exists()] + sorted(self.checkpoints.glob("step_*.rlsdk"))

    def start_over(self) -> None:
        """Remove the files of a run that has no checkpoint. Its metrics and its best agent move to a folder `earlier_1`."""
        set_aside([self.csv, self.jsonl, self.best])
        self.record.unlink(missing_ok=True)

    def newest(self, load: Callable[[Path], T]) -> T:
        """Return `load(path)` for the newest checkpoint that is not damaged. Warn about damaged ones.

        Raises:
            SettingsError: there is no such checkpoint.
        """
        for path in sorted(self.checkpoints.glob("step_*.rlsdk"), reverse=True):
            try:
                return load(path)
            except ArtifactError as error:
                warnings.warn(f"this checkpoint is left out: {error}", stacklevel=2)
        how = "with another --out" if any(self.path.rglob("*.rlsdk")) else "without --resume"
        raise SettingsError(f"{self.path} has no whole checkpoint to resume from; start it again {how}")


def _step_of(line: str) -> int | None:
    """Return the step at the beginning of a line of metrics; None for a header."""
    text = line.partition(",")[0].removeprefix('{"step": ')
    return int(text) if text.isdigit() else None


def _entries(folder: Path) -> list[Path]:
    return [folder, *folder.iterdir()] if folder.is_dir() else []
