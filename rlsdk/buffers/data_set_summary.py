"""A summary of a data set in numbers and words."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.buffers.episode_file import UNSEEDED
from rlsdk.buffers.episodes import Episodes, open_episodes

QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@attrs.frozen(eq=False)
class DataSetSummary:
    """The summary of a data set with E episodes."""

    path: Path
    digest: str
    environment: str | None
    observation_space: str
    action_space: str
    returns: NDArray[np.float64]
    """[E]: the sum of the rewards of each episode."""
    lengths: NDArray[np.int64]
    """[E]: the number of steps of each episode."""
    terminated: int
    """Number of terminated episodes. The others were truncated."""
    masks: bool
    seeds: tuple[int, ...]
    """The known seeds of episodes."""

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return int(self.lengths.sum())

    def as_table(self) -> dict[str, object]:
        """Return the summary as a table for JSON."""
        numbers = {"returns": self.returns.tolist(), "lengths": self.lengths.tolist(), "seeds": list(self.seeds)}
        counts = {"episodes": self.episodes, "steps": self.steps, "path": str(self.path)}
        return {**attrs.asdict(self), **counts, **numbers}

    def rows(self) -> dict[str, str]:
        """Return name -> text for each row of a table that people read."""
        known = f"{len(self.seeds)} known, from {min(self.seeds)} to {max(self.seeds)}" if self.seeds else "not known"
        return {
            "data set": f"{self.path}, digest {self.digest[:12]}",
            "environment": self.environment or "not named",
            "observation": self.observation_space,
            "action": self.action_space,
            "episodes": f"{self.episodes:,}: {self.terminated:,} terminated, {self.episodes - self.terminated:,} truncated",
            "steps": f"{self.steps:,}",
            "returns": f"mean {self.returns.mean():.2f}; least, quartiles, largest {_quartiles(self.returns)}",
            "lengths": f"mean {self.lengths.mean():.1f}; least, quartiles, largest {_quartiles(self.lengths)}",
            "action masks": "yes" if self.masks else "no",
            "seeds": known,
        }


def _quartiles(values: NDArray[np.float64] | NDArray[np.int64]) -> str:
    return ", ".join(f"{value:g}" for value in np.quantile(values, QUARTILES).round(2))


def summary_of(path: str | Path) -> DataSetSummary:
    """Return the summary of a data set. Observations and actions are not read.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    return summarised(open_episodes(path))


def summarised(episodes: Episodes) -> DataSetSummary:
    """Return the summary of an open file of episodes.

    Raises:
        ArtifactError: the file is damaged.
    """
    file = episodes.file
    header = file.header
    rewards = file.step_column("reward").double().numpy()
    seeds = file.seeds()
    return DataSetSummary(
        path=header.path,
        digest=header.digest,
        environment=header.environment,
        observation_space=str(header.observation_space),
        action_space=str(header.action_space),
        returns=np.add.reduceat(rewards, file.start.numpy()),
        lengths=file.length.numpy(),
        terminated=int(file.step_column("terminated").sum()),
        masks=file.masks() is not None,
        seeds=tuple(seeds[seeds != UNSEEDED].tolist()),
    )
