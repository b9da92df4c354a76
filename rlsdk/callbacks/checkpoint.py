"""Checkpoints every so many environment steps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.agent import persistence
from rlsdk.agent.resumption import restart_episodes
from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.errors import ArtifactError
from rlsdk.records import Report
from rlsdk.storage.agent_file import KIND
from rlsdk.storage.choose import inspect
from rlsdk.storage.journal import FOLDER, Journal

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.train import Run


class CheckpointCallback(Callback):
    """Saves the agent to `folder`/step_000010000.rlsdk every `every` environment steps and keeps the last `keep`.

    A training that is killed and resumed from such a file equals one that was not, to the bit: `load(path, env,
    force_reset=False)` and `learn(the rest, reset_num_timesteps=False)`. With `replay` the file holds the replay buffer
    too, which this needs. Where the state of environments cannot be kept (they hold something of unknown kind), a
    checkpoint ends the running episodes, as truncations; `cut_episodes=False` lets them run, and a resumed training
    differs from there on.

    The replay buffer is written piece by piece into the folder `replay` beside the files, each of which names the pieces it
    needs: a checkpoint costs what is new. `Agent.save(path, include=["replay"])` writes one file that holds everything.
    """

    def __init__(
        self, every: int, folder: str | Path, *, keep: int = 2, replay: bool = True, cut_episodes: bool = True
    ) -> None:
        self.counter, self.folder = StepCounter(every, "checkpoint every"), Path(folder)
        self.keep, self.replay, self.cut_episodes = keep, replay, cut_episodes
        self.journal = Journal(self.folder / FOLDER)

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps)
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            path, whole = self._write(run.agent)
            run.tell("on_checkpoint", path)
            if self.cut_episodes and not whole:
                restart_episodes(run)
        return True

    def save(self, agent: Agent) -> Path:
        """Write a checkpoint now and drop those beyond `keep`."""
        return self._write(agent)[0]

    def _write(self, agent: Agent) -> tuple[Path, bool]:
        """The file, and whether it holds the running episodes."""
        path = self.folder / f"step_{agent.num_timesteps:09d}.rlsdk"
        include = {"replay"} if self.replay and agent.replay_buffer is not None else persistence.NOTHING
        whole = persistence.save(agent, path, include=include, journal=self.journal)
        files = sorted(self.folder.glob("step_*.rlsdk"))
        for old in files[: -self.keep]:
            old.unlink(missing_ok=True)
        if include:
            self.journal.clear(name for kept in files[-self.keep :] for name in _parts_of(kept))
        return path, whole


def _parts_of(path: Path) -> list[str]:
    """The pieces of replay memory a checkpoint names; those of a damaged one are not worth keeping."""
    with contextlib.suppress(ArtifactError):
        return list(inspect(path, kind=KIND).get("replay_parts", ()))
    return []
