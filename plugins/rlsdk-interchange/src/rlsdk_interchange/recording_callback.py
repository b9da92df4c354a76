"""A callback that records the episodes of a training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rlsdk import tree
from rlsdk.callbacks import Callback, set_aside
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import plays_episodes
from rlsdk.records import EnvStep, Observation
from rlsdk_datasets import RecordedEpisode, require_place, write_episodes
from rlsdk_interchange.recorder import Recorder

if TYPE_CHECKING:
    from rlsdk.callbacks import Run


class RecordEpisodes(Callback):
    """Record the complete episodes of a training, and write them when it ends. The training is identical bit for bit.

    Observations and rewards are those of the environment, before `normalize`. Episodes that began before `learn`, or have not
    ended when it ends, are left out.
    """

    def __init__(self, path: str | Path, n_episodes: int | None = None) -> None:
        """
        Args:
            path: the file; `.safetensors` is appended to a name without suffix. A data set that is already
                there moves to the folder `earlier_1` beside it, with a warning.
            n_episodes: number of episodes to record, beginning with the first. None records all; memory grows with each step.

        Raises:
            SettingsError: `n_episodes` is not positive.
        """
        if n_episodes is not None and (isinstance(n_episodes, bool) or n_episodes < 1):
            raise SettingsError(
                f"n_episodes = {n_episodes!r} must be a positive whole number, or None for all episodes"
            )
        self.path, self.n_episodes = Path(path), n_episodes
        self.episodes: list[RecordedEpisode] = []
        self._recorder: Recorder | None = None

    def on_training_start(self, run: Run) -> None:
        """Begin the recording.

        Raises:
            UsageError: the raw observations of single steps are not available, because the algorithm runs whole episodes, or
                because of `frame_stack`.
            ArtifactError: the file cannot be written.
        """
        require_place(self.path)
        agent, self.episodes = run.driven, []
        if not agent.acting or plays_episodes(agent.parts.plan):
            raise UsageError("this algorithm plays whole episodes; record with record_episodes(agent, ...) after learn")
        if agent.config.frame_stack > 1:
            raise UsageError(
                "with frame_stack the raw observations are not seen; record with record_episodes after learn"
            )
        groups = [state.observation for state in agent.acting]
        seen: Observation = tree.map_tensors(lambda *leaves: torch.cat(leaves), *groups)
        # seeds are known only before the first step
        fresh = not (agent.cursor and agent.cursor.env_steps) and agent.env is not None
        seeds: Sequence[int | None] = getattr(agent.env, "reset_seeds", ()) if fresh else ()
        self._recorder = Recorder(seen, agent.context.action_space, seeds)

    def on_step(self, run: Run, step: EnvStep) -> None:
        assert self._recorder is not None
        for _, episode in self._recorder.step(step.action, step):
            if self.n_episodes is None or len(self.episodes) < self.n_episodes:
                self.episodes.append(episode)

    def on_training_end(self, run: Run) -> None:
        """Write the episodes. Warn if there are none.

        Raises:
            ArtifactError: the file cannot be written.
        """
        if not self.episodes:
            warnings.warn(
                f"RecordEpisodes: no episode began and ended in this training, so {self.path} is not written; train for longer",
                stacklevel=2,
            )
            return
        context = run.driven.context
        name = getattr(run.agent, "env_name", None)
        spaces = context.observation_space, context.action_space
        set_aside([require_place(self.path)])
        write_episodes(self.path, self.episodes, *spaces, name if isinstance(name, str) else None)
