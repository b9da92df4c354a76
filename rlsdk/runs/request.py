"""A run as its command describes it, and as `run.json` records it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
from attrs.validators import deep_mapping, instance_of

from rlsdk.errors import SettingsError, one_line, shown
from rlsdk.registry import AlgorithmSpec, Preset, extension, load
from rlsdk.registry.loading import is_offered
from rlsdk.registry.packaged_files import named_preset
from rlsdk.runtime.files import PATH_SETTINGS
from rlsdk.runtime.packages import pip_install
from rlsdk.settings import data_settings, merge, structure
from rlsdk.settings.load import nested

KindT = TypeVar("KindT")

MAX_COUNT, MAX_ENVS = 2**53, 2**16
"""The largest whole number that every program reads exactly from JSON, and the largest number of environments."""


@attrs.frozen
class Limits:
    """The validator of a number of a run. None passes: the option is not given."""

    least: float = 1
    most: float = MAX_COUNT

    def __call__(self, _: object, field: attrs.Attribute[Any], value: object) -> None:
        if isinstance(value, int | float) and not self.least <= value <= self.most:  # NaN is not, either
            wanted = f"at least {self.least} and less than or equal to {self.most}"
            raise SettingsError(f"{field.name} = {shown(value, 40)} must be {wanted}")


FINITE, COUNT, FROM_ZERO, ENVS, EPISODES, THREADS, ROUNDS = (
    Limits(-1e300, 1e300),
    Limits(),
    Limits(0),
    Limits(1, MAX_ENVS),
    Limits(1, 10**7),
    Limits(1, 2**12),
    Limits(0, 10**6),
)


@attrs.frozen(kw_only=True)
class FinalEvaluation:
    """The evaluation at the end of a run."""

    mean: float = attrs.field(validator=FINITE)
    std: float = attrs.field(validator=FINITE)
    episodes: int


@attrs.frozen(kw_only=True)
class RunRecord:
    """The content of run.json. `--resume` takes every option that the command line does not give from this record.

    The options are explained in `RunRequest`.
    """

    algorithm: str
    env: str | None = attrs.field(default=None)
    """The environment id; None if the run only has a data set."""
    dataset: str | None = None
    """The name of the data set that the algorithm learns from."""
    steps: int = attrs.field(validator=FROM_ZERO)
    n_envs: int = attrs.field(validator=ENVS)
    eval_every: int = attrs.field(validator=FROM_ZERO)
    checkpoint_every: int = attrs.field(validator=COUNT)
    seed: int = attrs.field(validator=FROM_ZERO)
    device: str = "auto"
    vectorization: str = "auto"
    preset: bool = False
    eval_episodes: int = attrs.field(default=10, validator=EPISODES)
    stop_at: float | None = attrs.field(default=None, validator=FINITE)
    threads: int = attrs.field(default=1, validator=THREADS)
    collectors: int | None = attrs.field(default=None, validator=ENVS)
    executor: str = "processes"
    max_lag: int = attrs.field(default=0, validator=ROUNDS)
    max_restores: int = attrs.field(default=0, validator=ROUNDS)
    schedule_until: int | None = attrs.field(default=None, validator=COUNT)
    exact_steps: bool = False
    sinks: tuple[str, ...] = ()
    policy_from: str | None = None
    places: dict[str, str] = attrs.field(factory=dict, validator=deep_mapping(instance_of(str), instance_of(str)))
    """The settings that are paths on disk: dotted name -> path."""
    status: str = "running"
    error: str | None = None
    env_steps: int | None = attrs.field(default=None, validator=FROM_ZERO)
    seconds: float = attrs.field(default=0.0, validator=FINITE)
    final_evaluation: FinalEvaluation | None = None
    system: Mapping[str, object] = attrs.field(factory=dict)

    @env.validator
    def _has_place(self, _: object, value: object) -> None:
        if value is None and self.dataset is None:
            raise SettingsError("env is missing, and so is dataset; it needs one of them")

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
        table = read_table(path)
        rounds: dict[str, object] = {}
        if type(steps := table.get("steps")) is int:  # a hand-written record may leave these out
            rounds |= {"eval_every": max(1, steps // 10), "checkpoint_every": max(1, steps // 5)}
        found = from_table(RunRecord, {**rounds, **table}, str(path))
        return attrs.evolve(found, places={name: found.places[name] for name in PATH_SETTINGS if name in found.places})


def option(text: str, limits: Limits | None = None, *, default: object = None, **how: object) -> Any:
    """Return a field of `RunRequest` that `rlsdk run` has as an option. `text` is its help.

    Args:
        limits: those of a whole number.
        default: the value if the option is not given.
        how: `name` of the option if it is not that of the field; `steps=True` for a count that may be written as 1e5;
            `complete`, the name of a function in `rlsdk.cli.completions`; `metavar`, what the help shows as the value.
    """
    return attrs.field(
        default=default, validator=limits, metadata={"help": text, "least": limits and limits.least, **how}
    )


@attrs.frozen(kw_only=True)
class RunRequest:
    """The options of a run, from which `rlsdk run` makes those of the command line. None means that one is not given.

    Raises:
        SettingsError: a number is out of range.
    """

    algorithm: str
    env: str | None = option("gymnasium id of the environment.", complete="complete_environment")
    settings: dict[str, Any] = attrs.field(factory=dict)
    use_preset: bool = True
    """Whether to start from the plugin's tuned settings for the environment, if it has some."""
    steps: int | None = option(
        "Total number of environment steps, or of updates if the agent learns only from a data set; 0 = an untrained agent"
        " (default: the preset's).",
        FROM_ZERO,
        steps=True,
    )
    policy_from: Path | None = option("Start with the policy of this agent file or run directory.", name="--from")
    n_envs: int | None = option("Number of environments that are stepped together (default 1; ARS: 16).", ENVS)
    out: Path | None = option("Run directory (default: a new one under runs/).")
    eval_every: int | None = option(
        "Environment steps between evaluations; 0 = never (default: a tenth of --steps).", FROM_ZERO, steps=True
    )
    eval_episodes: int | None = option("Episodes per evaluation (default: 10).", EPISODES)
    checkpoint_every: int | None = option(
        "Environment steps between checkpoints (default: a fifth of --steps).", COUNT, steps=True
    )
    stop_at: float | None = option("Stop when an evaluation reaches this mean return.", FINITE)
    resume: bool = option("Continue the run in --out.", default=False)
    trust: bool = option(
        "Allow files in --out or --config to name modules to import and paths to write to.", default=False
    )
    threads: int | None = option("torch threads (default: 1).", THREADS)
    preset: str | None = option(
        "Name of the tuned settings to use, see `rlsdk info`, or a settings file of rl-baselines3-zoo, .yml (default: the"
        " environment's).",
        complete="complete_preset",
    )
    executor: str | None = option(
        "Where seeds or collectors run: processes (the default), in-process, or an executor of a plugin.",
        complete="complete_executor",
    )
    collectors: int | None = option(
        "Number of processes that collect steps, each in a part of the environments, with a copy of the policy.", ENVS
    )
    max_lag: int | None = option(
        "Number of rounds that collectors may collect ahead of the learner (default 0: always with the newest policy).",
        ROUNDS,
    )
    max_restores: int | None = option(
        "If training diverges, restore the parameters of at most 10,000 steps earlier, at most this often (default 0: stop).",
        ROUNDS,
    )
    schedule_until: int | None = option(
        "Step at which schedules and exploration end, for runs that --resume continues (default: --steps).",
        COUNT,
        steps=True,
    )
    exact_steps: bool = option("End exactly at --steps; the last round is shorter.", default=False)
    vectorization: str | None = option("How environments are stepped: auto (the default), sync, async (processes), ...")
    sinks: tuple[str, ...] | None = option(
        "Further logger: tensorboard, console, or a plugin's. Can be repeated.",
        name="--logger",
        metavar="NAME",
        complete="complete_sink",
    )
    profile: bool = option("Print where the time was spent, with advice.", default=False)

    def explicit(self) -> dict[str, Any]:
        """Return the given options among `RESUMABLE`.

        Raises:
            SettingsError: two options contradict each other.
        """
        values = {name: getattr(self, name) for name in RESUMABLE}
        given = {name: value for name, value in values.items() if value is not None and value is not False}
        if given.get("stop_at") is not None and given.get("eval_every") == 0:
            raise SettingsError("--stop-at needs evaluations, and --eval-every 0 asks for none; leave one of them out")
        return given

    @property
    def places(self) -> dict[str, str]:
        """The settings that are paths on disk: dotted name -> path."""
        return places_in(self.settings)

    def fixed_settings(self) -> set[str]:
        """Return the dotted names of the settings that a resumed run may not change: neither paths nor data sets."""
        data = data_settings(load(self.algorithm).config_type)
        return set(_dotted({name: value for name, value in self.settings.items() if name not in data})) - set(
            PATH_SETTINGS
        )

    def to_resume(self) -> RunRequest:
        """Return the request to resume this run. The folder has the settings, except paths and data sets."""
        settings: dict[str, object] = {}
        for name, place in self.places.items():
            settings = merge(settings, nested(name.split("."), place))
        for name in data_settings(load(self.algorithm).config_type):  # agent files do not store paths
            settings |= {name: self.settings[name]} if self.settings.get(name) is not None else {}
        return attrs.evolve(self, resume=True, n_envs=None, settings=settings)

    def as_table(self) -> dict[str, object]:
        """Return the options as a table for JSON, without `NOT_STORED`."""
        table = attrs.asdict(self)
        if self.policy_from is not None:
            table["policy_from"] = str(self.policy_from)
        return {name: value for name, value in table.items() if name not in NOT_STORED}

    @staticmethod
    def of_table(table: Mapping[str, object], source: str) -> RunRequest:
        """Return the request of a result of `as_table`. `NOT_STORED` is ignored. Raises as `from_table`."""
        return from_table(RunRequest, {**table, **dict.fromkeys(NOT_STORED)}, source)


NOT_STORED = ("out", "resume", "trust")
"""A file does not choose where a run writes, that it is resumed, or that it is trusted."""
_RECORDED = {field.name for field in attrs.fields(RunRecord)} - {"algorithm", "env", "n_envs", "policy_from", "preset"}
RESUMABLE = tuple(field.name for field in attrs.fields(RunRequest) if field.name in _RECORDED)
"""Options that a resumed run takes from its record, unless they are given again."""


def from_table(kind: type[KindT], table: Mapping[str, object], source: str) -> KindT:
    """Return an object of the attrs class `kind` from a table of a file. `source` names the table in errors.

    Entries without a field are ignored, and so are those that are None or empty: another version may have written them.

    Raises:
        SettingsError: an entry is missing, or has a wrong type or value.
    """
    names = {field.name for field in attrs.fields(cast("Any", kind))}
    given = {name: value for name, value in table.items() if name in names and value not in (None, [], {})}
    try:
        return structure(given, kind)
    except SettingsError as error:
        raise SettingsError(f"{source} is damaged: {one_line('; '.join(str(error).splitlines()), 300)}") from None


def places_in(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings in a nested table that are paths on disk: dotted name -> path."""
    found = {}
    for name in PATH_SETTINGS:
        value: Any = settings
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = str(value)
    return found


def _dotted(settings: Mapping[str, object]) -> list[str]:
    names = []
    for name, value in settings.items():
        names += [f"{name}.{inner}" for inner in _dotted(value)] if isinstance(value, Mapping) else [name]
    return names


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
