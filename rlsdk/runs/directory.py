"""The folder of a run: its files and kinds, its lock, and whether this user made it.

config.toml        every setting of the run, with comments; `rlsdk run ALGO --config config.toml` repeats the run
run.json           algorithm, environment, steps, seed, versions, status
metrics.csv        metrics by step        metrics.jsonl   the same as JSON lines
checkpoints/       step_000010000.rlsdk ...: everything training needs to continue
best.rlsdk         the agent with the best evaluation       final.rlsdk   the agent at the end
learning_curve.png (with rlsdk-lab and matplotlib)
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import socket
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rlsdk.callbacks.checkpoint import replay_folder, set_aside
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.errors import ArtifactError, SettingsError, shown
from rlsdk.executors import is_place
from rlsdk.runs.request import RunRecord, RunRequest, places_in, read_table, read_text
from rlsdk.runtime.files import write_json, write_whole
from rlsdk.runtime.output import print_line
from rlsdk.settings import commented_toml
from rlsdk.settings.load import environment_id

T = TypeVar("T")
Choices = RunRecord | RunRequest
"""What decides which modules a run imports and where it writes."""

RUN, SEEDS = "run.json", "sweep.json"
KINDS = {
    RUN: "a run of `rlsdk run`",
    SEEDS: "runs of `rlsdk run --seeds`",
    "bench.json": "the runs of `rlsdk bench`",
    "journal.log": "a search of `rlsdk tune`",
}


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
            # Rights alone do not show it, for example on a disk that is mounted read-only.
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SettingsError(f"cannot write into {self.path}: {error.strerror}; choose another --out") from None
        with claimed(self.path):
            self.require_kind(kind)
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
        # The same settings need no second copy: a run that left no agent is begun again in its folder.
        if self.config.exists() and self.config.read_bytes() != data:
            set_aside([self.config])
        write_whole(self.config, data)

    def write_record(self, record: RunRecord) -> None:
        """Replace run.json atomically."""
        self.write_sealed(RUN, record.as_table(), record)

    def write_sealed(self, name: str, table: Mapping[str, object], stored: Choices) -> None:
        """Replace the record `name` atomically. It is sealed if `stored`, the choices in its content `table`, ask for that.

        Such choices are the user's alone, for example an own environment.
        """
        file = self.path / name
        write_json(file, sealed(file, table) if asks_for_trust(stored, self.path) else table)

    def needs_trust(self) -> bool:
        """Whether this run is refused without `--trust` although it was made here: there was no place for a key."""
        return asks_for_trust(self.read_record(), self.path) and record_made_here(self.record) is None

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

    def require_kind(self, own: str) -> None:
        """Check the folder before a command whose file is `own`, such as `run.json`, writes into it.

        Raises:
            SettingsError: another command wrote into the folder. The files of both commands would mix.
        """
        for name, held in KINDS.items():
            if name != own and (self.path / name).exists():
                raise SettingsError(f"{self.path} holds {held}; choose another --out")

    def require_trusted(
        self,
        source: str,
        *,
        env: str | None = None,
        settings: Mapping[str, object] | None = None,
        files: Iterable[Path] = (),
    ) -> None:
        """Check what a file that may come from someone else, such as a suite, chooses for runs below this folder.

        Args:
            source: name of the file in errors.
            env: the environment that the file names.
            settings: the settings of agents that it names.
            files: existing files that the runs will write.

        Raises:
            SettingsError: the environment would import a module or read a file, a setting is a path outside it, or a file is
                a symbolic link, so that another file would be written. The message names `--trust`.
        """
        if env is not None:
            require_own_environment(env, source, trust=False)
        require_own_places(places_in(settings or {}), self.path, source, trust=False)
        require_own_files(files, trust=False)

    def require_resumable(
        self, request: RunRequest, stored: Choices, name: str = RUN, files: Iterable[Path] = (), held: str = "a run"
    ) -> None:
        """Check the record `name` of what `request` continues: its algorithm and environment, and what it would decide.

        Values that the request gives again are not checked, because the user chose them.

        Args:
            stored: the content of the record.
            files: existing files that will be written.
            held: what the folder holds, in errors.

        Raises:
            SettingsError: the record is of another algorithm or environment. It is also raised if a module would be imported,
                or a file outside the folder written, and neither the request nor this machine vouches for the record.
        """
        source = self.path / name
        if stored.algorithm != request.algorithm:
            raise SettingsError(f"{self.path} holds {held} of {stored.algorithm!r}, not of {request.algorithm!r}")
        require_same_environment(request.env, stored.env, f"{self.path} holds {held} on")
        named = {key: place for key, place in stored.places.items() if key not in request.places}
        trust = request.trust or record_made_here(source) is not None
        if stored.env is not None:
            require_own_environment(stored.env, source, trust=trust or request.env is not None)
        require_own_places(named, self.path, str(source), trust=trust)
        # Not by the seal, which covers the record only: links may have been added since.
        require_own_files(files, trust=request.trust)
        for given, chosen in ((request.executor, stored.executor), (request.vectorization, stored.vectorization)):
            require_own_executor(chosen or "", str(source), trust=trust or given is not None)

    def require_enough_steps(self, asked: int | None, planned: int, trained: int) -> None:
        """Check the steps `asked` for this run, if any and it is resumed. Steps beyond the planned number do not count.

        The last round of a run may exceed its steps: a run of 600 steps in rounds of 32 ends at step 608.

        Raises:
            SettingsError: the run has been trained for more steps.
        """
        if asked is not None and asked < min(planned, trained):
            raise SettingsError(
                f"--steps {asked} is less than the {trained} steps that {self.path} has been trained for; give more, or leave"
                " it out"
            )

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
        # Their names have leading zeros, so they sort by step.
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


LOCK = ".running"
_held: set[Path] = set()
"""Folders that this process has locked. The locks of the operating system work only between processes."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock an existing folder inside the block. The lock ends with the process, even if the process is killed.

    On file systems without locks, nothing is locked.

    Raises:
        SettingsError: another run has locked the folder. The message names its process.
    """
    # One folder may have several paths.
    path = folder.resolve() / LOCK
    if path in _held:
        raise _in_use(folder, path)
    with contextlib.ExitStack() as stack:
        try:
            handle = _locked(path)
        except BlockingIOError:
            raise _in_use(folder, path) from None
        except OSError:
            handle = None
        if handle is not None:
            _held.add(path)
            stack.callback(_release, path, handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield


def _locked(path: Path) -> int | None:
    """Return the file descriptor of the locked lock file; None on systems without such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    while True:
        # O_NOFOLLOW: a link of this name could lead to another file, which would be emptied.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        # POSIX lets systems raise this error too for a file that another process has locked.
        except PermissionError:
            os.close(handle)
            raise BlockingIOError from None
        except OSError:
            os.close(handle)
            raise
        os.close(handle)  # another process removed the file in the meantime


def _release(path: Path, handle: int) -> None:
    _held.discard(path)
    # Before the lock ends: otherwise another process could lock the file and then lose it.
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(handle)


def _in_use(folder: Path, path: Path) -> SettingsError:
    try:
        holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
    except OSError:
        holder = "another process"
    return SettingsError(f"a run is running in {folder}, by {holder}; wait for its end, or stop it (Ctrl-C or SIGTERM)")


MAX_METRICS = 1 << 32
"""Largest file in bytes."""


def read_metric(path: Path, name: str, x: str = "step") -> tuple[list[float], list[float]]:
    """Return (x, values) of one column of a run's metrics.csv. Rows without the metric are left out.

    Raises:
        SettingsError: the file cannot be read, or the column holds texts.
    """
    try:
        table = csv.DictReader(read_text(path, MAX_METRICS).splitlines())
        rows = [row for row in table if row.get(name) and row.get(x)]
        if rows and not any(_is_number(row[name]) for row in rows):
            raise SettingsError(
                f"the metric {shown(name, 100)} of {path} has no numbers, for example {shown(rows[0][name], 50)}; choose"
                " another column of that file"
            )
        places, values = [float(row[x]) for row in rows], [float(row[name]) for row in rows]
    except (csv.Error, ValueError, TypeError) as error:
        raise error if isinstance(error, SettingsError) else SettingsError(f"{path} is damaged: {error}") from None
    if not all(map(math.isfinite, places)):
        raise SettingsError(f"{path} is damaged: its column {x} holds a number that is not finite")
    return places, values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Checks of stored files. Untrusted files may not choose which module is imported, or which files are read or written.
#
# Trusted are files that the user trusts with `--trust`, and records of runs that this user made on this machine.


def require_same_environment(given: str | None, stored: str | None, held: str) -> None:
    """Check that the environment `given` to a command, if any, is that of the run to continue.

    Raises:
        SettingsError: it is another one. The message begins with `held`.
    """
    if given is None or (stored is not None and environment_id(given) == environment_id(stored)):
        return
    raise SettingsError(
        f"{held} {stored!r}, not on {given!r}; give the same, or leave out --env, --env-kwargs and --wrapper"
    )


def require_own_environment(env: str, source: Path | str, *, trust: bool) -> str:
    """Return `env` after a check: it may not import a module or read a file unless `source` is trusted.

    Such ids are `package:Env-v0` and `Ant-v5?xml_file=/tmp/ant.xml`. A path `source` in a run directory that this user made
    here is trusted with the environment of the run.

    Raises:
        SettingsError: it is such an id, and `source` is not trusted.
    """
    if trust or (why := refusal(env)) is None or (isinstance(source, Path) and vouched_for(source, env)):
        return env
    raise SettingsError(
        f"{source} names the environment {shown(env)}, and a file may not choose what is imported or read: {why}; pass it with"
        " --env, or add --trust if you trust the file"
    )


def asks_for_trust(stored: Choices, folder: Path) -> bool:
    """Whether a record with these entries in `folder` is refused, unless it is trusted."""
    if stored.env is not None and refusal(stored.env) is not None:
        return True
    imports = any(is_place(name or "") for name in (stored.executor, stored.vectorization))
    return imports or not all(_is_inside(place, folder) for place in stored.places.values())


def require_own_executor(executor: str, source: str, *, trust: bool) -> None:
    """Check an executor that `source` names.

    Raises:
        SettingsError: the name refers to a module, which would be imported, and `source` is not trusted.
    """
    if is_place(executor) and not trust:
        raise SettingsError(
            f"{source} names the executor {executor!r}, and loading it would import a module; pass it again, or add --trust if"
            " you trust the file"
        )


def require_own_places(places: Mapping[str, object], folder: Path, source: str, *, trust: bool) -> None:
    """Check the paths that `source` names.

    Raises:
        SettingsError: a path is outside `folder`, and `source` is not trusted.
    """
    for name, place in places.items():
        if not trust and not _is_inside(place, folder):
            raise SettingsError(
                f"{source} names a place to write, {name} = {str(place)[:200]!r}; pass it again with --set {name}=..., or"
                " add --trust if you trust the file"
            )


def require_own_files(paths: Iterable[Path], *, trust: bool) -> None:
    """Check files before they are written.

    Raises:
        SettingsError: a file is a symbolic link, so another file would be written, and the folder is not trusted.
    """
    for path in paths:
        if path.is_symlink() and not trust:
            raise SettingsError(
                f"{path} is a link to another place, which would be written to; add --trust if you trust the folder"
            )


def _is_inside(place: object, folder: Path) -> bool:
    if not isinstance(place, str) or "\0" in place:
        return False
    try:
        return Path(place).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a cycle of symbolic links
        return False


def find_agent(path: Path) -> Path:
    """Return the agent file at `path`. For a run directory, return the best agent, the final one or the newest checkpoint.

    If there is no such file or agent, `path` is taken for the name of a file without its suffix.

    Raises:
        SettingsError: nothing has this name, or it is a folder without an agent.
    """
    checkpoints = sorted((path / "checkpoints").glob("step_*.rlsdk"), reverse=True)
    inside = (path / "best.rlsdk", path / "final.rlsdk", *checkpoints)
    for file in (path, *inside, Path(f"{path}.rlsdk"), Path(f"{path}.zip")):
        if file.is_file():
            return file
    if not path.exists():
        raise SettingsError(
            f"there is no file or folder {path}; name an agent file, or a directory that `rlsdk run` wrote"
        )
    if not path.is_dir():  # a pipe or a device: reading it raises an error later
        return path
    below = sorted(inner.parent for inner in path.glob("*/final.rlsdk"))
    hint = f"name one of its runs, such as {below[0]}" if below else "name an agent file, or a run directory"
    raise SettingsError(f"{path} is a folder that holds no agent itself; {hint}")


# Records of runs that this user made on this machine. They may name what the record of someone else may not.
#
# A record has a seal: a keyed hash of its content and of its folder. The key is a file that only this user can read,
# outside of all runs. So a record that was changed, copied to another folder or written by someone else has no valid
# seal.

SEAL = "made_here"
"""The entry of a record with its seal."""
KEY, SIZE = "key", 32
"""The file with the key, and its size in bytes."""


def sealed(file: Path, table: Mapping[str, object]) -> dict[str, object]:
    """Return the content `table` of the record `file` with its seal; without one if there is no place for a key."""
    # In the form in which it is read: JSON has no tuples.
    plain, key = json.loads(json.dumps(table)), _key(make=True)
    return plain if key is None else {**plain, SEAL: _seal(key, file, plain)}


def record_made_here(file: Path) -> dict[str, object] | None:
    """Return the content of the record `file`, if this user wrote it on this machine, in this folder; else None."""
    try:
        table = read_table(file)
    except SettingsError:
        return None
    key, seal = _key(make=False), table.pop(SEAL, None)
    if key is None or not isinstance(seal, str):
        return None
    # As bytes, because `compare_digest` refuses text other than ASCII.
    return table if hmac.compare_digest(_seal(key, file, table).encode(), seal.encode("utf-8", "replace")) else None


def vouched_for(file: Path, env: str) -> bool:
    """Whether `file`, in a run directory or its checkpoints, names the environment of a run that this user made here.

    The other content of an agent file or settings file needs no seal: it cannot make rlsdk import or write anything.
    """
    try:
        folder = file.resolve().parent
        record = record_made_here((folder.parent if folder.name == "checkpoints" else folder) / RUN)
        return record is not None and record.get("env") == env
    except (OSError, RuntimeError):  # RuntimeError: a cycle of symbolic links
        return False


def _seal(key: bytes, file: Path, table: Mapping[str, object]) -> str:
    place = file.parent.resolve() / file.name  # a link in another folder to a record is not that record
    content = json.dumps([str(place), table], sort_keys=True)
    return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def state_folder() -> Path:
    """Return the folder of files that rlsdk stores for this user: `XDG_STATE_HOME/rlsdk`, or the system's usual place.

    Raises:
        RuntimeError: the user has no home.
    """
    if chosen := os.environ.get("XDG_STATE_HOME"):
        return Path(chosen) / "rlsdk"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "rlsdk"
    return Path.home() / ".local" / "state" / "rlsdk"


def _key(*, make: bool) -> bytes | None:
    """Return the key of this user, made if there is none and `make`; None if there is none, or if others can read it."""
    with contextlib.suppress(OSError, RuntimeError):
        path = state_folder() / KEY
        if make and not path.exists():
            _make_key(path)
        return _read_key(path)
    return None


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent) as stream:  # only this user can read it
        stream.write(secrets.token_bytes(SIZE))
        stream.flush()
        with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
            os.link(stream.name, path)


def _read_key(path: Path) -> bytes | None:
    # O_NOFOLLOW: a link could lead to a file whose content others know.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as stream:
        found, key = os.fstat(handle), stream.read(SIZE + 1)
    # Windows has no such bits.
    private = os.name == "nt" or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
    return key if stat.S_ISREG(found.st_mode) and private and len(key) == SIZE else None
