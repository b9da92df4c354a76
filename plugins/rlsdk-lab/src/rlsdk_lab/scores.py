"""Scores of finished runs, read from their folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError
from rlsdk.runs import RunDirectory
from rlsdk_lab.curves import write_csv


@attrs.frozen(kw_only=True)
class Score:
    """The final evaluation of one run."""

    algorithm: str
    env: str
    seed: int
    budget: int
    """Environment steps that the run was planned to take."""
    steps: int
    """Environment steps that the run took. They can exceed `budget`, because the last round may end later."""
    mean: float
    std: float
    episodes: int
    seconds: float
    folder: Path


def score_of(folder: Path) -> Score | None:
    """Return the score of a run directory; None if the run is not finished, or had no environment for evaluations.

    Raises:
        SettingsError: the record of the run is damaged.
    """
    record = RunDirectory(folder).read_record()
    if record.status != "finished" or record.env is None:
        return None
    final = record.final_evaluation
    if final is None or record.env_steps is None:
        raise SettingsError(f"{folder / 'run.json'} is damaged: a finished run has env_steps and final_evaluation")
    return Score(
        algorithm=record.algorithm,
        env=record.env,
        seed=record.seed,
        budget=record.steps,
        steps=record.env_steps,
        mean=final.mean,
        std=final.std,
        episodes=final.episodes,
        seconds=record.seconds,
        folder=folder,
    )


def scores_below(folder: Path) -> list[Score]:
    """Return the scores of all finished runs at or below a folder, ordered by environment, algorithm and seed.

    Raises:
        SettingsError: there is no finished run, or a record is damaged.
    """
    found = (score_of(path.parent) for path in sorted(folder.rglob("run.json")))
    scores = [score for score in found if score is not None]
    if not scores:
        raise SettingsError(f"{folder} holds no finished run; give a folder that `rlsdk run` or `rlsdk bench` wrote")
    return sorted(scores, key=lambda score: (score.env, score.algorithm, score.seed))


def means(scores: Iterable[Score]) -> NDArray[np.float64]:
    """Return the mean returns of the runs [N]."""
    return np.asarray([score.mean for score in scores], dtype=np.float64)


def write_scores(scores: Sequence[Score], path: Path) -> None:
    """Write a CSV file with one row per run; raises like `write_csv`."""
    fields = [field.name for field in attrs.fields(Score)]
    write_csv(path, fields, ([getattr(score, name) for name in fields] for score in scores))
