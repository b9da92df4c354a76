"""The record of a run, run.json: its options, its status and its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from rlsdk.errors import SettingsError
from rlsdk.experiments.stored_tables import Entries, read_table
from rlsdk.runtime.places import PLACES

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
        steps, dataset = entries.count("steps"), entries.optional_text("dataset")
        return RunRecord(
            algorithm=entries.text("algorithm"),
            env=entries.text("env") if dataset is None else entries.optional_text("env"),
            dataset=dataset,
            steps=steps,
            n_envs=entries.count("n_envs", most=MAX_ENVS),
            eval_every=entries.count("eval_every", max(1, steps // 10), least=0),
            checkpoint_every=entries.count("checkpoint_every", max(1, steps // 5)),
            seed=entries.count("seed", least=0),
            device=entries.text("device", "auto"),
            vectorization=entries.text("vectorization", "auto"),
            preset=entries.flag("preset", False),
            eval_episodes=entries.count("eval_episodes", 10, most=MAX_EPISODES),
            stop_at=entries.optional_number("stop_at"),
            threads=entries.count("threads", 1, most=MAX_THREADS),
            collectors=entries.optional_count("collectors", least=1, most=MAX_ENVS),
            executor=entries.text("executor", "processes"),
            max_lag=entries.count("max_lag", 0, least=0),
            max_restores=entries.count("max_restores", 0, least=0),
            schedule_until=entries.optional_count("schedule_until", least=1),
            exact_steps=entries.flag("exact_steps", False),
            sinks=entries.texts("sinks"),
            policy_from=entries.optional_text("policy_from"),
            places=_places(entries),
            status=entries.text("status", "running"),
            error=entries.optional_text("error"),
            env_steps=entries.optional_count("env_steps"),
            seconds=entries.number("seconds", 0.0),
            final_evaluation=_final(entries),
            system=entries.table_of("system"),
        )


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


def _places(entries: Entries) -> dict[str, str]:
    places = entries.table_of("places")
    inner = Entries(places, f"{entries.source}, places")
    return {name: inner.text(name) for name in PLACES if name in places}


def _final(entries: Entries) -> FinalEvaluation | None:
    table = entries.table_of("final_evaluation")
    if not table:
        return None
    final = Entries(table, f"{entries.source}, final_evaluation")
    return FinalEvaluation(mean=final.number("mean"), std=final.number("std"), episodes=final.count("episodes"))
