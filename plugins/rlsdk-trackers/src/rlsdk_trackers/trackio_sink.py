"""The logger for trackio (extra `trackio`)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk_trackers.pictures import array_of
from rlsdk_trackers.tracked_run import TrackedRun
from rlsdk_trackers.tracker import PROJECT, Scalar, Tracker, group_of, is_video

PROBE = 100_000
"""Bytes that a run needs at least."""


class TrackioSink(Tracker):
    """Writes to a run of trackio, in the folder TRACKIO_DIR or at the service of TRACKIO_SPACE_ID or TRACKIO_SERVER_URL."""

    title = "trackio"
    name = "trackio"
    hint = "see that TRACKIO_DIR can be written, and that what TRACKIO_SPACE_ID or TRACKIO_SERVER_URL names answers"
    _service: Any = None

    def default_project(self) -> str:
        """The name in TRACKIO_PROJECT, else "rlsdk"."""
        return os.environ.get("TRACKIO_PROJECT") or PROJECT

    def start(self, run: TrackedRun, details: dict[str, Scalar], *, known: bool) -> None:
        """Begin or continue a run. Its name includes a part of its id, because trackio identifies runs by their names."""
        if not (os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")):
            _require_space(Path(self.library.utils.TRACKIO_DIR))
        self._service = self.library.init(
            project=run.project,
            name=f"{run.name}-{run.id[:6]}",
            group=group_of(details),
            config=details,
            resume="allow" if known else "never",
            embed=False,
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers under the environment step `step`."""
        self._service.log(dict(values), step=step)

    def show_settings(self, values: dict[str, Scalar]) -> None:
        """Put settings into the configuration of the run, which trackio sends with the first numbers."""
        self._service.config.update(values)

    def show_text(self, step: int, name: str, text: str) -> bool:
        """Show a text as Markdown."""
        self._service.log({name: self.library.Markdown(text)}, step=step)
        return True

    def show_picture(self, step: int, name: str, path: Path) -> bool:
        """Show a picture as an image."""
        self._service.log({name: self.library.Image(str(path))}, step=step)
        return True

    def show_video(self, step: int, name: str, path: Path, fps: float) -> bool:
        """Show a video."""
        self._service.log({name: self.library.Video(str(path))}, step=step)
        return True

    def show_histogram(self, step: int, name: str, values: object) -> bool:
        """Draw a histogram."""
        self._service.log({name: self.library.Histogram(array_of(values))}, step=step)
        return True

    def store(self, paths: list[Path]) -> None:
        """Store agents and settings as one artifact, and show videos."""
        artifact = self.library.Artifact(name=f"agent-{self._service.id}", type="agent")
        for path in paths:
            if is_video(path):
                self._service.log({f"video/{path.stem}": self.library.Video(str(path))})
            else:
                artifact.add_file(str(path))
        self._service.log_artifact(artifact)

    def finish(self, *, failed: bool) -> None:
        """Send the data that is not sent yet, and end the run."""
        service, self._service = self._service, None
        service.finish()
        current = self.library.context_vars.current_run
        if current.get() is service:
            current.set(None)  # else trackio finishes it again when Python ends


def _require_space(folder: Path) -> None:
    """Raises OSError where trackio cannot write: it prints a warning for each batch of numbers that it loses."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(PROBE))
