"""Callbacks that save the agent at intervals and restore it; files of an earlier training are moved aside."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.errors import ArtifactError, DivergenceError, SettingsError, require_file_name
from rlsdk.records import Report
from rlsdk.runtime.output import counted, print_line
from rlsdk.storage.archive import AGENT_KIND, inspect
from rlsdk.storage.journal import FOLDER, Journal
from rlsdk.training.train import copied_parameters
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
    differs. Files always contain the statistics of normalization, so `save_vecnormalize` has no effect.

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
        if name_prefix is not None and (not name_prefix or Path(name_prefix).name != name_prefix):
            raise SettingsError(f"name_prefix = {name_prefix!r} must be the beginning of a file name")
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise SettingsError(f"keep = {keep!r} must be a positive whole number, or None for all")
        if not isinstance(save_path, str | PathLike):
            raise SettingsError(f"save_path = {save_path!r} must be the folder of the checkpoints")
        require_file_name(Path(save_path) / (name_prefix or ""))
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
        self.counter.begin(run)
        # Now: a file of this name that appears later was written by another training.
        self._divide_files(run.agent)
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            path, whole = self._write(run.agent)
            run.notify("on_checkpoint", path)
            # In every run, not only in those that are resumed: otherwise a resumed run would differ (decision 0014).
            if self.cut_episodes and not whole:
                run.restart_episodes()
        return True

    def save(self, agent: TrainedAgent) -> Path:
        """Write a checkpoint now, delete all but the last `keep`, and return the path of the new file."""
        return self._write(agent)[0]

    def _write(self, agent: TrainedAgent) -> tuple[Path, bool]:
        """(the path of the new file, whether it contains the running episodes)."""
        # `save` may be called without `learn`.
        if self._own is None:
            self._divide_files(agent)
        path = self.folder / self._name(agent.num_timesteps)
        self._move_foreign_files(path)
        whole = agent.save_checkpoint(path, replay=self.save_replay_buffer, journal=self.journal)
        if self.verbose:
            print_line(f"checkpoint at step {agent.num_timesteps:,}: {path}")
        assert self._own is not None
        # The time distinguishes this file from one of another training that replaces it.
        self._own[path] = path.stat().st_mtime_ns
        # After the new file is whole: a crash never leaves fewer than `keep` files.
        if self.keep is not None:
            for old in [file for file in self._files() if self._is_own(file)][: -self.keep]:
                old.unlink(missing_ok=True)
                del self._own[old]
        # Last, and for all files of the folder: parts are shared, and each remaining file needs its own.
        if self.save_replay_buffer and agent.replay_buffer is not None:
            self.journal.clear(name for file in self.folder.glob("*.rlsdk") for name in _parts_of(file))
        return path, whole

    def _divide_files(self, agent: TrainedAgent) -> None:
        """Divide the checkpoints in the folder into those of the training that `agent` continues, and foreign ones."""
        known = self._files() if self.folder.is_dir() else []
        self._own = {path: path.stat().st_mtime_ns for path in known if belongs(path, agent)}
        self._foreign = [path for path in known if path not in self._own]

    def _is_own(self, path: Path) -> bool:
        """Whether this training wrote the file, and no other has replaced it since."""
        try:
            return self._own is not None and self._own.get(path) == path.stat().st_mtime_ns
        except FileNotFoundError:
            # another training has moved it just now
            return False

    def _move_foreign_files(self, path: Path) -> None:
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
        # By number: with a prefix, names have no leading zeros and do not sort as text.
        return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _parts_of(path: Path) -> list[str]:
    """The names of the parts of the replay buffer that a checkpoint needs; none if the file is damaged."""
    with contextlib.suppress(ArtifactError):
        names = inspect(path, kind=AGENT_KIND).get("replay_parts")
        return [str(name) for name in names] if isinstance(names, list) else []
    return []


class RestoreOnDivergence(Callback):
    """Restores all networks, optimizers and running statistics when a metric or an action becomes NaN or infinite.

    Training continues with a copy in memory, which is renewed every `every` environment steps at the end of a round. Step
    counts, random numbers and the replay buffer are not restored, so the next update learns from other samples. A warning names
    the metric or action. The `DivergenceError` is raised after `at_most` restorations in one call of `learn`, or if the copy
    does not fit networks that were changed.
    """

    def __init__(self, every: int = 10_000, *, at_most: int = 3) -> None:
        """Raises SettingsError if `every` or `at_most` is not a positive whole number."""
        if not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 1:
            raise SettingsError(f"RestoreOnDivergence at_most = {at_most!r} must be a positive whole number")
        self.counter, self.at_most = StepCounter(every, "RestoreOnDivergence every"), at_most
        self.restored = 0
        """The number of restorations in this call of `learn`."""
        self._copy: tuple[int, dict[str, object]] | None = None

    def on_training_start(self, run: Run) -> None:
        self.counter.start(run.num_timesteps)
        self.restored, self._copy = 0, None
        self._copy_parameters(run)

    def on_report(self, run: Run, report: Report) -> None:
        if self.counter.due(run.num_timesteps):
            self._copy_parameters(run)

    def on_divergence(self, run: Run, error: DivergenceError) -> bool | None:
        if self._copy is None or self.restored >= self.at_most:
            return None
        step, parameters = self._copy
        try:
            run.agent.set_parameters(parameters)
        except ArtifactError as reason:
            error.add_note(f"the parameters of step {step} could not be restored: {reason}")
            return None
        self.restored += 1
        warnings.warn(
            f"{error}; the parameters of step {step} were restored ({self.restored} of at most {self.at_most} times)",
            RuntimeWarning,
            stacklevel=2,
        )
        return True

    def _copy_parameters(self, run: Run) -> None:
        parameters = copied_parameters(run.agent)
        # None: the parameters have diverged already, so the earlier copy stays.
        if parameters is not None:
            self._copy = run.num_timesteps, parameters


EARLIER = "earlier"
"""The folders of earlier files are `earlier_1`, `earlier_2` and so on, each beside the files that were moved there."""


def belongs(path: Path, agent: TrainedAgent) -> bool:
    """Whether an agent file was written by the training that `agent` now continues, at or before its current step.

    At step 0 that is an untrained agent of the same algorithm and seed. A damaged file belongs to no training.
    """
    with contextlib.suppress(ArtifactError):
        found = inspect(path, kind=AGENT_KIND)
        own = (found.get("algorithm"), found.get("seed")) == (agent.spec.id, agent.seed)
        written = found.get("num_timesteps")
        return own and isinstance(written, int) and written <= agent.num_timesteps
    return False


def set_aside(files: Iterable[Path], parts: Mapping[str, Path] | None = None) -> None:
    """Move existing files into the next free folder `earlier_N` beside them, and warn.

    Args:
        files: the files of another training. Those that do not exist are left out.
        parts: path inside `earlier_N` -> file that the moved files need there too. It also stays where it is.

    Raises:
        ArtifactError: a file cannot be moved.
    """
    # `groupby` needs sorted folders.
    found = sorted(filter(Path.exists, files), key=lambda path: (path.parent, path.name))
    for folder, moved in itertools.groupby(found, lambda path: path.parent):
        paths = list(moved)
        try:
            place = _new_folder(folder)
            # Parts first: if this is interrupted, no file was moved without them.
            for name, part in (parts or {}).items():
                _link_or_copy(part, place / name)
            for path in paths:
                os.replace(path, place / path.name)
        except OSError as error:
            raise ArtifactError(
                f"{folder} holds {paths[0].name} of another training, which cannot be moved aside: {error.strerror or error};"
                " choose another folder"
            ) from None
        more = f" and {counted(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        warnings.warn(
            f"{paths[0]}{more} would be replaced by this training; moved to {place}, so that nothing is lost; use another"
            " folder for each training",
            stacklevel=2,
        )


def _new_folder(folder: Path) -> Path:
    """Make the first folder `earlier_N` that does not exist, and return it."""
    for number in itertools.count(1):
        place = folder / f"{EARLIER}_{number}"
        # Another training may make the same folder between a check and `mkdir`.
        with contextlib.suppress(FileExistsError):
            place.mkdir()
            return place
    raise AssertionError


def _link_or_copy(part: Path, place: Path) -> None:
    """Make the file `part` also available as `place`: without a copy where the file system can."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # the file that needs it was not whole before
    with contextlib.suppress(FileNotFoundError):
        try:
            os.link(part, place)
        # It is an OSError as well, but a copy would fail in the same way.
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(part, place)
