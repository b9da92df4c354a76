"""The logger for Weights & Biases (extra `wandb`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk_trackers.pictures import array_of
from rlsdk_trackers.tracked_run import TrackedRun
from rlsdk_trackers.tracker import PROJECT, Scalar, Tracker, group_of, is_video


class WandbSink(Tracker):
    """Writes to a run of Weights & Biases. Environment variables of wandb are respected, such as WANDB_MODE, WANDB_PROJECT and
    WANDB_ENTITY."""

    title = "Weights & Biases"
    name = "wandb"
    hint = "log in with `wandb login`, or set WANDB_MODE=offline"
    _service: Any = None

    def default_project(self) -> str:
        """The name in WANDB_PROJECT, else "rlsdk"."""
        return os.environ.get("WANDB_PROJECT") or PROJECT

    def start(self, run: TrackedRun, details: dict[str, Scalar], *, known: bool) -> None:
        """Begin or continue a run that is separate from other runs of the program."""
        self._service = self.library.init(
            project=run.project,
            id=run.id,
            name=run.name,
            group=group_of(details),
            config=details,
            dir=os.environ.get("WANDB_DIR") or str(self.folder),
            resume="allow",
            reinit="create_new",
            allow_val_change=True,
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers under the environment step `step`."""
        self._service.log(dict(values), step=step)

    def show_settings(self, values: dict[str, Scalar]) -> None:
        """Put settings into the configuration of the run."""
        self._service.config.update(values, allow_val_change=True)

    def show_text(self, step: int, name: str, text: str) -> bool:
        """Show a text as preformatted HTML."""
        from html import escape

        self._service.log({name: self.library.Html(f"<pre>{escape(text)}</pre>")}, step=step)
        return True

    def show_picture(self, step: int, name: str, path: Path) -> bool:
        """Show a picture as an image."""
        self._service.log({name: self.library.Image(str(path))}, step=step)
        return True

    def show_video(self, step: int, name: str, path: Path, fps: float) -> bool:
        """Show a video."""
        self._service.log({name: self.library.Video(str(path), format=path.suffix[1:])}, step=step)
        return True

    def show_histogram(self, step: int, name: str, values: object) -> bool:
        """Draw a histogram."""
        self._service.log({name: self.library.Histogram(array_of(values))}, step=step)
        return True

    def store(self, paths: list[Path]) -> None:
        """Store agents and settings as one artifact, and show videos."""
        artifact = self.library.Artifact(f"agent-{self._service.id}", type="agent")
        for path in paths:
            if is_video(path):
                self._service.log({f"video/{path.stem}": self.library.Video(str(path), format=path.suffix[1:])})
            else:
                artifact.add_file(str(path))
        self._service.log_artifact(artifact)

    def finish(self, *, failed: bool) -> None:
        """Send the data that is not sent yet, and end the run."""
        service, self._service = self._service, None
        service.finish(exit_code=1 if failed else 0)
