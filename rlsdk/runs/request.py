"""A run as its command describes it, and as `run.json` records it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry import AlgorithmSpec, Preset, extension, named_preset
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.files import PLACES
from rlsdk.runtime.packages import pip_install

MAX_COUNT = 2**53
MAX_ENVS, MAX_THREADS, MAX_EPISODES, MAX_RESTORES = 2**16, 2**12, 10**7, 10**6
"""The largest counts of a run. `MAX_RESTORES` is also the largest number of rounds that collectors may be ahead."""


@attrs.frozen(kw_only=True)
class FinalEvaluation:
    """The evaluation at the end of a run."""

    mean: float
    std: float
    episodes: int


@attrs.frozen(kw_only=True)
class RunRecord:
    """The content of run.json. `--resume` takes every option that the command line does not give from this record."""

    algorithm: str
    env: str | None
    """The environment id; None if the run only has a data set."""
    dataset: str | None = None
    """The name of the data set that the algorithm learns from."""
    steps: int
    n_envs: int
    eval_every: int
    checkpoint_every: int
    seed: int
    device: str = "auto"
    vectorization: str = "auto"
    preset: bool = False
    eval_episodes: int = 10
    stop_at: float | None = None
    threads: int = 1
    collectors: int | None = None
    executor: str = "processes"
    """Name of the executor that runs the collectors."""
    max_lag: int = 0
    """Number of rounds that collectors may be ahead of the learner."""
    max_restores: int = 0
    """How often earlier parameters are restored if the training diverges."""
    schedule_until: int | None = None
    """The count of steps at which schedules end; None: at the end of the run."""
    exact_steps: bool = False
    """Whether the last round is cut, so that the run ends exactly."""
    sinks: tuple[str, ...] = ()
    policy_from: str | None = None
    """The file with the policy that the run began with."""
    places: dict[str, str] = attrs.field(factory=dict)
    """The settings that are paths on disk: dotted name -> path."""
    status: str = "running"
    error: str | None = None
    env_steps: int | None = None
    seconds: float = 0.0
    final_evaluation: FinalEvaluation | None = None
    system: dict[str, Any] = attrs.field(factory=dict)

    @property
    def place(self) -> str:
        """The environment, or the data set if there is no environment, as text for messages."""
        return self.env or f"the data set {self.dataset}"

    def as_table(self) -> dict[str, object]:
        """Return the record as a table for JSON, without entries that are None."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}

    @staticmethod
    def read(path: Path) -> RunRecord:
        """Return the record in a file.

        Raises:
            SettingsError: the file is missing or damaged. The message names the entry.
        """
        return RunRecord.of(read_table(path), str(path))

    @staticmethod
    def of(table: Mapping[str, object], source: str) -> RunRecord:
        """Return the record in a table. `source` names the table in errors. Raises as `read`."""
        entries = Entries(table, source)
        steps = entries.count("steps")
        rounds = {"eval_every": max(1, steps // 10), "checkpoint_every": max(1, steps // 5)}
        found = Entries({**rounds, **table}, source).fields(RunRecord)
        if found.get("dataset") is None:
            entries.require("env", "a text")
        places = Entries(found.get("places", {}), f"{source}, places")
        known = {name: places.text(name) for name in PLACES if name in places.table}
        return RunRecord(**{**found, "places": known})


def require_enough_steps(asked: int | None, planned: int, trained: int, folder: Path) -> None:
    """Check the steps `asked` for a resumed run in `folder`, if any. Steps beyond the planned number do not count.

    The last round of a run may exceed its steps: a run of 600 steps in rounds of 32 ends at step 608.

    Raises:
        SettingsError: the run has been trained for more steps.
    """
    if asked is not None and asked < min(planned, trained):
        raise SettingsError(
            f"--steps {asked} is less than the {trained} steps that {folder} has been trained for; give more, or leave it out"
        )


RESUMABLE = (
    "steps",
    "eval_every",
    "eval_episodes",
    "checkpoint_every",
    "stop_at",
    "threads",
    "vectorization",
    "sinks",
    "collectors",
    "executor",
    "max_lag",
    "max_restores",
    "schedule_until",
    "exact_steps",
)
"""Options that a resumed run takes from its record, unless they are given again."""
LIMITS = {
    "n_envs": (1, MAX_ENVS),
    "seed": (0, MAX_COUNT),
    "eval_every": (0, MAX_COUNT),
    "eval_episodes": (1, MAX_EPISODES),
    "threads": (1, MAX_THREADS),
    "collectors": (1, MAX_ENVS),
    "max_lag": (0, MAX_RESTORES),
    "max_restores": (0, MAX_RESTORES),
    "env_steps": (0, MAX_COUNT),
}
"""Whole number of a request or record -> its least and largest value; 1 and `MAX_COUNT` for the others."""


@attrs.frozen(kw_only=True)
class RunRequest:
    """The options of a run. None means that an option is not given."""

    algorithm: str
    env: str | None = None
    steps: int | None = None
    settings: dict[str, Any] = attrs.field(factory=dict)
    n_envs: int | None = None
    out: Path | None = None
    eval_every: int | None = None
    eval_episodes: int | None = None
    checkpoint_every: int | None = None
    stop_at: float | None = None
    resume: bool = False
    trust: bool = False
    """Whether the files of a resumed run may name modules to import, and paths outside of its folder to write to."""
    threads: int | None = None
    use_preset: bool = True
    """Whether to start from the plugin's tuned settings for the environment, if it has some."""
    preset: str | None = None
    """Name of the preset to start from; None: the preset of the environment."""
    vectorization: str | None = None
    """How the training environments are stepped; see `make_vec_env`."""
    sinks: tuple[str, ...] | None = None
    """Names of further metric sinks: `console`, `tensorboard`, or a plugin's."""
    profile: bool = False
    """Whether to print the time that each part of the training took."""
    collectors: int | None = None
    """Number of collectors that share the training environments; see `make_vec_env`."""
    executor: str | None = None
    """Name of the executor that runs the collectors."""
    max_lag: int | None = None
    """Number of rounds that collectors may be ahead of the learner."""
    max_restores: int | None = None
    """How often earlier parameters are restored if the training diverges."""
    schedule_until: int | None = None
    """The count of steps at which schedules end; None: at the end of the run."""
    exact_steps: bool = False
    """Whether the last round is cut, so that the run ends exactly."""
    policy_from: Path | None = None
    """An agent file or a run directory with the policy that the run begins with."""

    def explicit(self) -> dict[str, Any]:
        """Return the given options among `RESUMABLE`.

        Raises:
            SettingsError: an option is out of range, or two options contradict each other.
        """
        values = {name: getattr(self, name) for name in RESUMABLE}
        given = {name: value for name, value in values.items() if value is not None and value is not False}
        for name, value in given.items():
            least, most = LIMITS.get(name, (1, MAX_COUNT))
            if isinstance(value, int) and not isinstance(value, bool) and not least <= value <= most:
                option = name.replace("_", "-")
                wanted = "a positive whole number" if least else "a whole number, 0 or more"
                raise SettingsError(f"--{option} {value} must be {wanted}{f', up to {most}' if value > most else ''}")
        if (goal := given.get("stop_at")) is not None and not math.isfinite(goal):
            raise SettingsError(f"--stop-at {goal} must be a finite number")
        if goal is not None and given.get("eval_every") == 0:
            raise SettingsError("--stop-at needs evaluations, and --eval-every 0 asks for none; leave one of them out")
        return given

    def as_table(self) -> dict[str, object]:
        """Return the options as a table for JSON, without `out`, `resume` and `trust`."""
        table = attrs.asdict(self)
        if self.policy_from is not None:
            table["policy_from"] = str(self.policy_from)
        return {name: value for name, value in table.items() if name not in ("out", "resume", "trust")}

    @staticmethod
    def of(entries: Entries) -> RunRequest:
        """Return the request in a table.

        Raises:
            SettingsError: an entry is missing or has a wrong type or value.
        """
        # a file does not choose where a run writes, that it is resumed, or that it is trusted
        table = {name: value for name, value in entries.table.items() if name not in ("out", "resume", "trust")}
        return RunRequest(**Entries(table, entries.source).fields(RunRequest))


PRESET_FILES = (".yaml", ".yml")
"""Suffixes of settings files of rl-baselines3-zoo, which rlsdk-lab reads."""


def is_preset_file(name: str) -> bool:
    """Whether `--preset` names a file that a package reads, not a preset of the algorithm."""
    return Path(name).suffix in PRESET_FILES or is_offered("preset_files", Path(name).suffix)


def chosen_preset(name: str, spec: AlgorithmSpec, env: str | None) -> Preset:
    """Return the preset that `--preset` names: a preset of the algorithm, or the one for `env` in a settings file.

    Raises:
        SettingsError: there is no such preset, no package reads the file, or a file is named without an environment.
    """
    if not is_preset_file(name):
        return named_preset(spec.id, name)
    suffix = Path(name).suffix
    if not is_offered("preset_files", suffix):
        raise SettingsError(f"--preset {name} is read by rlsdk-lab, which is not installed: {pip_install('rlsdk-lab')}")
    if env is None:
        raise SettingsError(f"--preset {name} has a table for each environment: add --env ID")
    found: Preset = extension("preset_files", suffix)(Path(name), spec, env)
    return found


MAX_BYTES = 1 << 24


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text of a regular file.

    Raises:
        SettingsError: the path is missing or not a file, the file is larger than `limit` bytes, or it is not UTF-8.
    """
    try:
        if not path.is_file():  # reading a named pipe would never end
            raise SettingsError(f"{path} is missing, or is not a file")
        if path.stat().st_size > limit:
            raise SettingsError(f"{path} is damaged: it is larger than {limit:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is damaged: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise error if isinstance(error, SettingsError) else SettingsError(f"{path} cannot be read: {error}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        SettingsError: as `read_text`, or the file does not contain a JSON object.
    """
    try:
        table = json.loads(read_text(path))
    except SettingsError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not JSON ({error})"
        raise SettingsError(f"{path} is damaged: {reason}") from None
    if not isinstance(table, dict):
        raise SettingsError(f"{path} is damaged: it holds no table")
    return table


class Entries:
    """The entries of a table. Every method checks an entry and raises SettingsError if it is wrong or missing.

    `source` names the table in errors.
    """

    def __init__(self, table: Mapping[str, object], source: str) -> None:
        self.table, self.source = table, source

    def _wrong(self, name: str, wanted: str) -> SettingsError:
        if name not in self.table:
            return SettingsError(f"{self.source} is damaged: it has no {name}; it needs {wanted}")
        return SettingsError(f"{self.source} is damaged: {name} = {str(self.table[name])[:80]!r} is not {wanted}")

    def require(self, name: str, wanted: str) -> object:
        """Return the entry `name`. The error names what it must be, `wanted`."""
        if self.table.get(name) is None:
            raise self._wrong(name, wanted)
        return self.table[name]

    def count(self, name: str, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return the entry `name` as a whole number from `least` to `most`."""
        value = self.require(name, wanted := f"a whole number from {least} to {most}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, wanted)
        return value

    def text(self, name: str) -> str:
        """Return the entry `name` as text."""
        value = self.require(name, "a text")
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def table_of(self, name: str) -> dict[str, Any]:
        """Return the entry `name` as a table, empty if it is absent."""
        value = self.table.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, "a table")
        return value

    def fields(self, kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
        """Return the entries that are fields of an attrs class, each checked by the type of its field.

        An entry that is None or an empty list or table is left out where the field has a default, and so is an absent one.
        """
        types = get_type_hints(kind)
        return {
            field.name: self._of_type(field.name, types[field.name])
            for field in attrs.fields(kind)
            if field.default is attrs.NOTHING or self.table.get(field.name) not in (None, [], (), {})
        }

    def _of_type(self, name: str, declared: Any) -> object:
        kinds = [each for each in get_args(declared) or (declared,) if each is not type(None)]
        kind = get_origin(declared) if get_origin(declared) in (tuple, dict) else get_origin(kinds[0]) or kinds[0]
        value = self.table.get(name)
        if kind is int:
            return self.count(name, *LIMITS.get(name, (1, MAX_COUNT)))
        if kind in (str, Path):
            return None if value is None and declared != kind else kind(self.text(name))
        if kind is dict:
            return self.table_of(name)
        if kind is bool and isinstance(value, bool):
            return value
        if kind is tuple and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        number = isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
        if kind is float and number:
            return float(value)  # type: ignore[arg-type]
        if attrs.has(kind):
            return kind(**Entries(self.table_of(name), f"{self.source}, {name}").fields(kind))
        raise self._wrong(name, WANTED[kind])


WANTED = {bool: "true or false", tuple: "a list of texts", float: "a finite number"}
