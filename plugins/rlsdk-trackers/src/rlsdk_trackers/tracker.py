"""`Tracker`, the base class of the sinks of all trackers."""

from __future__ import annotations

import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from rlsdk.errors import RlsdkError, SettingsError, one_line
from rlsdk.runtime import pip_install
from rlsdk.sinks import Figure, HParam, Image, Video
from rlsdk_trackers.pictures import write_figure, write_image, write_video
from rlsdk_trackers.tracked_run import TrackedRun

Scalar = bool | int | float | str | None
PROJECT = "rlsdk"
VIDEOS = (".mp4", ".gif")


def group_of(details: Mapping[str, Scalar]) -> str | None:
    """The group of a run, "ALGORITHM on ENVIRONMENT": trackers show runs of one group together. None without both names."""
    parts = [str(details[name]) for name in ("algorithm", "env") if name in details]
    return " on ".join(parts) or None


def is_video(path: Path) -> bool:
    """Whether a file is a video, according to its suffix."""
    return path.suffix in VIDEOS


class Tracker(ABC):
    """A metric sink that writes to one run of a tracker. A resumed training continues the same run.

    The run begins with the first value that is written. A file in `folder`, such as wandb.json, names the run.
    """

    title: ClassVar[str]
    """The name of the tracker in messages."""
    name: ClassVar[str]
    """The name of the sink, of the tracker's library, and of the extra that installs it."""
    hint: ClassVar[str]
    """What users can do if a run cannot begin, for the error message."""

    def __init__(
        self, folder: str | Path, *, project: str | None = None, run_name: str | None = None, resume: bool = False
    ) -> None:
        """Make a sink. No run begins yet.

        Args:
            folder: the run directory, which is created if it does not exist.
            project: the project of the run (default: the project in the tracker's environment variable, or "rlsdk").
            run_name: the name that the tracker shows (default: the last two parts of the folder's path).
            resume: continue the run that the folder names, if there is one, as `rlsdk run --resume` does.

        Raises:
            SettingsError: the library is not installed.
        """
        self.folder, self.project, self.resume = Path(folder), project, resume
        self.run_name = run_name or "/".join(self.folder.resolve().parts[-2:]).strip("/") or "run"
        self.library: Any = self._imported()
        self.run: TrackedRun | None = None
        self._closed = False
        self._seen = -1
        """The latest step that was written before the training was resumed. Values up to this step are not written again."""

    def _imported(self) -> Any:
        try:
            return import_module(self.name)
        except ImportError as error:
            lacking = "" if getattr(error, "name", None) == self.name else f" ({one_line(error, 200)})"
            raise SettingsError(
                f"the logger {self.name!r} needs {self.title}{lacking}: {pip_install(f'rlsdk-trackers[{self.name}]')}"
            ) from None

    # --- what rlsdk calls ---------------------------------------------------------------------------------------------

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool) -> None:
        """Begin a run, or continue the run that the folder names if `resumed` is true.

        Raises:
            SettingsError: the tracker cannot begin a run, or the file that names the run is damaged.
        """
        if self.run is not None:
            self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}.json"
        known = TrackedRun.read(path) if resumed else None
        run = known or TrackedRun.new(path, self.run_name, self.project or self.default_project())
        self._seen = run.last_step
        try:
            self.start(run, dict(details), known=known is not None)
        except RlsdkError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error, 300)}"
            raise SettingsError(f"{self.title} cannot begin a run ({reason}); {self.hint}") from error
        self.run = run
        run.store()

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Show the settings of the training."""
        self._begun()
        self.show_settings(dict(values))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers, unless they were written before the training was resumed."""
        run = self._begun()
        if step <= self._seen:
            return
        self.log(step, values)
        if step > run.last_step:
            run.last_step = step
            run.store()

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Show texts, pictures, figures, videos and histograms. Returns the names of the values that the tracker shows."""
        self._begun()
        if step <= self._seen:
            return list(values)
        with tempfile.TemporaryDirectory() as place:
            return [name for name, value in values.items() if self._show(name, value, step, Path(place))]

    def _show(self, name: str, value: object, step: int, place: Path) -> bool:
        if isinstance(value, HParam):
            self.show_settings(dict(value.hparam_dict))
            return True
        if isinstance(value, str):
            return self.show_text(step, name, value)
        if isinstance(value, Image):
            return self.show_picture(step, name, write_image(value, place))
        if isinstance(value, Figure):
            return self.show_picture(step, name, write_figure(value, place))
        if isinstance(value, Video):
            return self.show_video(step, name, write_video(value, place), value.fps)
        return hasattr(value, "shape") and self.show_histogram(step, name, value)

    def histograms(self, step: int, tensors: Mapping[str, object]) -> bool:
        """Draw a histogram of every tensor. Returns False if the tracker draws no histograms."""
        self._begun()
        drawn = [self.show_histogram(step, f"parameters/{name}", tensor) for name, tensor in tensors.items()]
        return all(drawn)

    def take_files(self, paths: Sequence[Path]) -> None:
        """Store the agents and settings of the run in the tracker, and show its videos."""
        self._begun()
        self.store(list(paths))

    def close(self) -> None:
        """End the run. Its status is "failed" if an exception is being handled."""
        if self.run is not None:
            self.run, self._closed = None, True
            self.finish(failed=sys.exception() is not None)

    def _begun(self) -> TrackedRun:
        """Return the run, which begins now if it has not begun. After `close` the same run continues."""
        if self.run is None:
            closed = self._closed
            self.begin_run({}, resumed=self.resume or closed)
            if closed:
                self._seen = -1  # the training continued, so that nothing is repeated
        assert self.run is not None
        return self.run

    # --- for each tracker ---------------------------------------------------------------------------------------------

    def default_project(self) -> str:
        """The name of the project if none is given."""
        return PROJECT

    @abstractmethod
    def start(self, run: TrackedRun, details: dict[str, Scalar], *, known: bool) -> None:
        """Begin `run`, or continue it if `known` is true. May set `run.id` to an id that the tracker chose."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers under the environment step `step`."""

    @abstractmethod
    def show_settings(self, values: dict[str, Scalar]) -> None:
        """Show settings."""

    @abstractmethod
    def show_text(self, step: int, name: str, text: str) -> bool:
        """Show a text. Returns whether the tracker can."""

    @abstractmethod
    def show_picture(self, step: int, name: str, path: Path) -> bool:
        """Show a PNG file. Returns whether the tracker can."""

    @abstractmethod
    def show_video(self, step: int, name: str, path: Path, fps: float) -> bool:
        """Show an MP4 file. Returns whether the tracker can."""

    @abstractmethod
    def show_histogram(self, step: int, name: str, values: object) -> bool:
        """Draw a histogram of the values of an array. Returns whether the tracker can."""

    @abstractmethod
    def store(self, paths: list[Path]) -> None:
        """Store files in the tracker."""

    @abstractmethod
    def finish(self, *, failed: bool) -> None:
        """End the run, with the status "failed" if `failed` is true."""
