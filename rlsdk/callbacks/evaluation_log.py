"""Writes the evaluations of a training to a file of numpy arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsdk.errors import one_line
from rlsdk.runtime.whole_files import write_atomically

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation

Arrays = dict[str, Any]
"""Name -> numpy array."""
NAMES = ("timesteps", "results", "ep_lengths")


class EvaluationLog:
    """Writes `folder`/evaluations.npz with E evaluations of n episodes each.

    The arrays are `timesteps` int64 [E], `results` (returns) float64 [E, n] and `ep_lengths` int64 [E, n]. If every episode
    reported success or failure, `successes` bool [E, n] is added.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.npz"
        self.before: Arrays = {}
        """The arrays that an earlier call of `learn` of the same training wrote."""
        self._replaces = False
        """Whether the file holds evaluations that the next `write` would remove."""

    def start(self, steps: int) -> None:
        """Prepare the log for a training that continues at `steps` environment steps: evaluations up to there stay in the file,
        and new ones are appended. A training that begins at step 0 begins a new file."""
        self.before, self._replaces = {}, self.path.exists()
        if not steps or not self._replaces:
            return
        try:
            with np.load(self.path, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            earlier = arrays["timesteps"] <= steps
            self.before = {name: arrays[name][earlier] for name in (*NAMES, "successes") if name in arrays}
            if set(NAMES) - set(self.before):
                raise ValueError("arrays are missing")
            _require_evaluations(self.before, int(earlier.sum()))
            self._replaces = not earlier.all()
        except Exception as error:  # numpy and zipfile raise any error for a damaged file
            self.before = {}
            warnings.warn(f"{self.path} cannot be continued and is begun again: {one_line(error, 300)}", stacklevel=3)

    @property
    def best(self) -> float:
        """The highest mean return of the earlier evaluations of the training; minus infinity without any."""
        results = self.before.get("results")
        return float("-inf") if results is None or not results.size else float(results.mean(1).max())

    def outdated(self, n_episodes: int) -> list[Path]:
        """The file, if it holds evaluations that evaluations of `n_episodes` episodes would replace: those of another training,
        later ones, or ones with another number of episodes. The caller moves it aside; `write` begins a new file."""
        fits = not self.before or self.before["results"].shape[1] == n_episodes
        if not fits:
            self.before = {}
        found = [self.path] if self._replaces or not fits else []
        self._replaces = False
        return found

    def write(self, history: Sequence[tuple[int, Evaluation]]) -> None:
        """Replace the file atomically with the earlier evaluations and those in `history`, as (environment steps, result).

        Raises:
            ArtifactError: the file cannot be written.
        """
        arrays: Arrays = {
            "timesteps": np.array([step for step, _ in history], np.int64),
            "results": np.array([result.returns for _, result in history], np.float64),
            "ep_lengths": np.array([result.lengths for _, result in history], np.int64),
        }
        successes = [[episode.success for episode in result.episodes] for _, result in history]
        if not any(None in row for row in successes):
            arrays["successes"] = np.array(successes, np.bool_)
        if self.before:
            names = [name for name in arrays if name in self.before]
            arrays = {name: np.concatenate([self.before[name], arrays[name]]) for name in names}
        write_atomically(self.path, lambda stream: np.savez(stream, **arrays))


def _require_evaluations(arrays: Arrays, count: int) -> None:
    """Check the arrays of `count` evaluations from a file, to which more are appended. Raises ValueError for others."""
    shape = count, *arrays["results"].shape[1:]
    for name, kinds, wanted in (
        *(("timesteps", "i", (count,)), ("results", "fi", shape), ("ep_lengths", "i", shape)),
        *((("successes", "b", shape),) if "successes" in arrays else ()),
    ):
        array = arrays[name]
        if array.dtype.kind not in kinds or array.shape != wanted or len(shape) != 2 or not np.isfinite(array).all():
            raise ValueError(f"{name} of shape {array.shape} and dtype {array.dtype} are not of evaluations")
