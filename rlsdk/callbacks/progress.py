"""A callback that shows the progress of training: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from rlsdk.callbacks.callback import Callback
from rlsdk.records import Report
from rlsdk.runtime.output import Lasting, is_quiet, print_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rlsdk.training.run import Run

REFRESH = 0.2
"""The seconds between two updates of the bar on a terminal."""


class ProgressBar(Callback):
    """Shows the steps, mean return, steps per second and remaining time. If `stream` is not a terminal, it writes a line every
    `seconds` seconds."""

    def __init__(self, stream: TextIO | None = None, *, seconds: float = 10.0) -> None:
        self.stream: Any = Lasting(stream or sys.stderr)
        self.live = self.stream.isatty()
        self.seconds = REFRESH if self.live else seconds
        self._shown = 0.0
        self._bar: tuple[Progress, TaskID] | None = None

    def on_training_start(self, run: Run) -> None:
        self._shown = time.perf_counter()
        if self.live and not is_quiet():
            self._bar = _live_bar(run.total_timesteps, self.stream)

    def on_report(self, run: Run, report: Report) -> bool | None:
        if time.perf_counter() - self._shown >= self.seconds and not is_quiet():
            self._shown = time.perf_counter()
            self._show(run)
        return True

    def on_training_end(self, run: Run) -> None:
        if not is_quiet():
            self._show(run)
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def _show(self, run: Run) -> None:
        done, rate = run.count - run.start, run.steps_per_second
        mean = run.mean_return
        text = f"return {mean:9.2f}" if mean is not None else "return         -"
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=done, outcome=text, rate=f"{rate:,.0f} steps/s")
            return
        left = _clock((run.total_timesteps - done) / rate) if rate else "?"
        line = f"{done:>10,}/{run.total_timesteps:,} steps  {text}  {rate:7,.0f} steps/s  {left} left"
        print_line(line, self.stream)


def _live_bar(total: int, stream: TextIO) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[outcome]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=stream),
    )
    progress.start()
    return progress, progress.add_task("training", total=total, outcome="", rate="")


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    return (
        f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        if whole >= 3600
        else f"{whole // 60}:{whole % 60:02d}"
    )
