"""The options of a run on the command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs

from rlsdk.errors import SettingsError
from rlsdk.experiments.run_record import MAX_ENVS, MAX_EPISODES, MAX_RESTORES, MAX_THREADS
from rlsdk.experiments.stored_tables import MAX_COUNT, Entries

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
FROM_ZERO = ("eval_every", "max_lag", "max_restores")
MOST = {
    "eval_episodes": MAX_EPISODES,
    "threads": MAX_THREADS,
    "collectors": MAX_ENVS,
    "max_lag": MAX_RESTORES,
    "max_restores": MAX_RESTORES,
}
"""Option -> its largest value; `MAX_COUNT` for the others."""


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
            least, most = 0 if name in FROM_ZERO else 1, MOST.get(name, MAX_COUNT)
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
        known: dict[str, Any] = {
            "steps": entries.optional_count("steps", least=1),
            "n_envs": entries.optional_count("n_envs", least=1, most=MAX_ENVS),
            "eval_every": entries.optional_count("eval_every"),
            "eval_episodes": entries.optional_count("eval_episodes", least=1, most=MAX_EPISODES),
            "checkpoint_every": entries.optional_count("checkpoint_every", least=1),
            "threads": entries.optional_count("threads", least=1, most=MAX_THREADS),
            "stop_at": entries.optional_number("stop_at"),
            "env": entries.optional_text("env"),
            "preset": entries.optional_text("preset"),
            "vectorization": entries.optional_text("vectorization"),
            "collectors": entries.optional_count("collectors", least=1, most=MAX_ENVS),
            "executor": entries.optional_text("executor"),
            "max_lag": entries.optional_count("max_lag"),
            "max_restores": entries.optional_count("max_restores"),
            "schedule_until": entries.optional_count("schedule_until", least=1),
            "exact_steps": entries.flag("exact_steps", False),
            "policy_from": Path(begun) if (begun := entries.optional_text("policy_from")) else None,
            "sinks": entries.texts("sinks") or None,
            "settings": entries.table_of("settings"),
            "use_preset": entries.flag("use_preset", True),
            "profile": entries.flag("profile", False),
        }
        return RunRequest(algorithm=entries.text("algorithm"), **known)
