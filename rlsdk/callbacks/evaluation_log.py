"""The evaluations of a training as a file of arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from rlsdk.runtime.whole_files import write_atomically

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation

Arrays = dict[str, Any]
"""Name -> numpy array."""
NAMES = ("timesteps", "results", "ep_lengths")


class EvaluationLog:
    """`folder`/evaluations.npz: `timesteps` int64 [E], `results` float64 [E, n], `ep_lengths` int64 [E, n], and `successes`
    bool [E, n] where every episode reported one."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.npz"
        self.before: Arrays = {}
        """Arrays that an earlier part of the same training wrote."""

    def start(self, steps: int) -> None:
        """Training begins at `steps`: evaluations up to there stay in the file, new ones are appended."""
        self.before = {}
        if not steps or not self.path.exists():
            return
        try:
            with np.load(self.path, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            earlier = arrays["timesteps"] <= steps
            self.before = {name: arrays[name][earlier] for name in (*NAMES, "successes") if name in arrays}
            if set(NAMES) - set(self.before):
                raise ValueError("arrays are missing")
        except (OSError, ValueError, KeyError, IndexError, TypeError, BadZipFile) as error:
            self.before = {}
            warnings.warn(f"{self.path} cannot be continued and is begun again: {error}", stacklevel=3)

    def write(self, history: Sequence[tuple[int, Evaluation]]) -> None:
        """Replace the file, whole or not at all, by the earlier evaluations and these; raises as `write_atomically`."""
        arrays: Arrays = {
            "timesteps": np.array([step for step, _ in history], np.int64),
            "results": np.array([result.returns for _, result in history], np.float64),
            "ep_lengths": np.array([result.lengths for _, result in history], np.int64),
        }
        successes = [[episode.success for episode in result.episodes] for _, result in history]
        if not any(None in row for row in successes):
            arrays["successes"] = np.array(successes, np.bool_)
        if self.before and self.before["results"].shape[1:] == arrays["results"].shape[1:]:
            names = [name for name in arrays if name in self.before]
            arrays = {name: np.concatenate([self.before[name], arrays[name]]) for name in names}
        write_atomically(self.path, lambda stream: np.savez(stream, **arrays))
