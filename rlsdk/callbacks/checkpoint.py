"""A callback that saves the agent at regular intervals."""

from __future__ import annotations

import contextlib
import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback, StepCounter, steps_of_round
from rlsdk.callbacks.earlier_training import belongs, set_aside
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.records import Report
from rlsdk.runtime.output import print_line
from rlsdk.storage.archive import AGENT_KIND
from rlsdk.storage.factory import inspect
from rlsdk.storage.journal import FOLDER, Journal
from rlsdk.training.trained_agent import TrainedAgent

if TYPE_CHECKING:
    from rlsdk.training.run import Run


def replay_folder(checkpoints: Path) -> Path:
    """The folder, below a folder of checkpoints, that holds the rows of the replay buffer."""
    return checkpoints / FOLDER


class CheckpointCallback(Callback):
    """Saves the agent every `save_freq` environment steps and deletes all but the last `keep` files; None deletes none.

    The files are `save_path`/step_000010000.rlsdk, or `save_path`/`name_prefix`_10000_steps.rlsdk with a `name_prefix`.
    Only files of the same training are deleted. Those of another training move to `save_path`/earlier_1, with a warning,
    before the first file is written. A training from step 0 is another training than those before it. If a training
    continues from an earlier checkpoint, the later ones move.

    A training that is resumed from such a file continues exactly as if it had not been interrupted. To resume it, call
    `load(path, env, force_reset=False)` and `learn(the rest, reset_num_timesteps=False)`. This needs `save_replay_buffer` for
    algorithms with a replay buffer. If the state of the environments cannot be stored (they hold an object of unknown kind), a
    checkpoint ends the running episodes as truncations. `cut_episodes=False` lets them run, but a resumed training then
    differs. Files always contain the statistics of normalisation, so `save_vecnormalize` has no effect.

    The replay buffer is written in parts into the folder `replay` below `save_path`, and files name the parts that they need.
    So a checkpoint writes only new rows. `Agent.save(path, include=["replay"])` writes everything into one file.
    """

    def __init__(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        save_freq: int,
        save_path: str | Path,
        name_prefix: str | None = None,
        save_replay_buffer: bool = True,
        save_vecnormalize: bool = True,
        verbose: int = 0,
        *,
        keep: int | None = 2,
        cut_episodes: bool = True,
    ) -> None:
        if name_prefix is not None and (
            not name_prefix or Path(name_prefix).name != name_prefix or "\0" in name_prefix
        ):
            raise SettingsError(f"name_prefix = {name_prefix!r} must be the beginning of a file name")
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise SettingsError(f"keep = {keep!r} must be a positive whole number, or None for all")
        if not isinstance(save_path, str | PathLike):
            raise SettingsError(f"save_path = {save_path!r} must be the folder of the checkpoints")
        self.counter, self.folder = StepCounter(save_freq, "save_freq"), Path(save_path)
        self.name_prefix, self.verbose = name_prefix, verbose
        self.keep, self.save_replay_buffer, self.cut_episodes = keep, save_replay_buffer, cut_episodes
        self.journal = Journal(replay_folder(self.folder))
        self._own: dict[Path, int] | None = None
        """Checkpoint of this training -> when it was written, in nanoseconds; None before the training is known."""
        self._foreign: list[Path] = []

    @property
    def save_path(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder

    @property
    def save_freq(self) -> int:
        """The number of environment steps between two checkpoints."""
        return self.counter.every

    @save_freq.setter
    def save_freq(self, value: int) -> None:
        self.counter = self.counter.changed(value)

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps, steps_of_round(run.driven))
        self._look(run.agent)
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            path, whole = self._write(run.agent)
            run.notify("on_checkpoint", path)
            if self.cut_episodes and not whole:
                run.restart_episodes()
        return True

    def save(self, agent: TrainedAgent) -> Path:
        """Write a checkpoint now, delete all but the last `keep`, and return the path of the new file."""
        return self._write(agent)[0]

    def _write(self, agent: TrainedAgent) -> tuple[Path, bool]:
        """(the path of the new file, whether it contains the running episodes)."""
        if self._own is None:
            self._look(agent)
        path = self.folder / self._name(agent.num_timesteps)
        self._clear_the_way(path)
        whole = agent.save_checkpoint(path, replay=self.save_replay_buffer, journal=self.journal)
        if self.verbose:
            print_line(f"checkpoint at step {agent.num_timesteps:,}: {path}")
        assert self._own is not None
        self._own[path] = path.stat().st_mtime_ns
        if self.keep is not None:
            for old in [file for file in self._files() if self._is_own(file)][: -self.keep]:
                old.unlink(missing_ok=True)
                del self._own[old]
        if self.save_replay_buffer and agent.replay_buffer is not None:
            self.journal.clear(name for file in self.folder.glob("*.rlsdk") for name in _parts_of(file))
        return path, whole

    def _look(self, agent: TrainedAgent) -> None:
        """Divide the checkpoints in the folder into those of the training that `agent` continues, and foreign ones."""
        known = self._files() if self.folder.is_dir() else []
        self._own = {path: path.stat().st_mtime_ns for path in known if belongs(path, agent)}
        self._foreign = [path for path in known if path not in self._own]

    def _is_own(self, path: Path) -> bool:
        """Whether this training wrote the file, and no other has replaced it since."""
        try:
            return self._own is not None and self._own.get(path) == path.stat().st_mtime_ns
        except FileNotFoundError:  # another training has moved it just now
            return False

    def _clear_the_way(self, path: Path) -> None:
        """Move foreign checkpoints aside, with their parts of the replay buffer, also one that came to `path` meanwhile."""
        foreign = [*self._foreign, *([path] if path.exists() and not self._is_own(path) else [])]
        foreign, self._foreign = [file for file in dict.fromkeys(foreign) if file.exists()], []
        names = {name for file in foreign for name in _parts_of(file)}
        set_aside(foreign, {f"{FOLDER}/{name}": self.journal.folder / name for name in names})

    def _name(self, steps: int) -> str:
        return f"step_{steps:09d}.rlsdk" if self.name_prefix is None else f"{self.name_prefix}_{steps}_steps.rlsdk"

    def _files(self) -> list[Path]:
        """The paths of the checkpoints of this callback, in the order of their steps."""
        prefix = self.name_prefix
        pattern = r"step_(\d+)\.rlsdk" if prefix is None else rf"{re.escape(prefix)}_(\d+)_steps\.rlsdk"
        found = ((re.fullmatch(pattern, path.name), path) for path in self.folder.iterdir())
        return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _parts_of(path: Path) -> list[str]:
    """The names of the parts of the replay buffer that a checkpoint needs; none if the file is damaged."""
    with contextlib.suppress(ArtifactError):
        names = inspect(path, kind=AGENT_KIND).get("replay_parts")
        return [str(name) for name in names] if isinstance(names, list) else []
    return []
