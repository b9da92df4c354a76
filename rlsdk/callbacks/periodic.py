"""Callbacks that draw histograms of the parameters, show the progress of the training, or end it on Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.records import Report
from rlsdk.runtime.output import LossyStream, is_quiet, print_line
from rlsdk.training.run import Run

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ResultT = TypeVar("ResultT")


class ParameterHistograms(Callback):
    """Writes histograms of the policy's parameters every `every` environment steps to sinks that support them (TensorBoard).

    Raises SettingsError at the start of training if no sink supports histograms.
    """

    def __init__(self, every: int) -> None:
        self.counter = StepCounter(every, "ParameterHistograms every")

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.begin(run)
        # At the start too: it raises if no sink takes histograms, before training time is spent.
        run.write_histograms()
        return None

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.counter.due(run.num_timesteps):
            run.write_histograms()
        return None


REFRESH = 0.2
"""The seconds between two updates of the bar on a terminal."""


class ProgressBar(Callback):
    """Shows the steps, mean return, steps per second and remaining time. If `stream` is not a terminal, it writes a line every
    `seconds` seconds."""

    def __init__(self, stream: TextIO | None = None, *, seconds: float = 10.0) -> None:
        # A closed terminal must not end the training.
        self.stream: Any = LossyStream(stream or sys.stderr)
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
        # What was shown last may be `seconds` old.
        if not is_quiet():
            self._show(run)
        # Also if quiet: rich has hidden the cursor of the terminal, and its thread still runs.
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def _show(self, run: Run) -> None:
        done, rate = run.count - run.start, run.steps_per_second
        mean = run.mean_return
        text = f"return {mean:8.2f}" if mean is not None else "return        -"
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=done, outcome=text, rate=f"{rate:,.0f} steps/s")
            return
        left = _as_clock((run.total_timesteps - done) / rate) if rate else "?"
        line = f"{done:>10,}/{run.total_timesteps:,} steps  {text}  {rate:7,.0f} steps/s  {left} left"
        print_line(line, self.stream)


def _live_bar(total: int, stream: TextIO) -> tuple[Progress, TaskID]:
    # Imported here: 60 ms, and only a bar on a terminal needs it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        # narrow, so that all fits in 80 columns; red, the usual color of a bar that is not full, looks like an error
        BarColumn(20, complete_style="cyan", finished_style="green"),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[outcome]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=Console(file=stream),
    )
    progress.start()
    return progress, progress.add_task("training", total=total, outcome="", rate="")


def _as_clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    return (
        f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        if whole >= 3600
        else f"{whole // 60}:{whole % 60:02d}"
    )


# A callback that ends a command-line run cleanly at Ctrl-C. Only the command line uses it: a library must not install
# signal handlers.

Handler = Callable[[int, FrameType | None], object] | int | None
"""A signal handler: a function, a constant of the module `signal`, or None if it was not installed from Python."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# Windows has no such signal.
HANG_UP = getattr(signal, "SIGHUP", None)


class StopOnInterrupt(Callback):
    """Stops training after the current round at the first Ctrl-C, SIGTERM or SIGHUP, and an evaluation in `cut_short` at once.
    A second signal is not caught and stops the program immediately."""

    def __init__(self) -> None:
        self.interrupted = False
        self._at_once = False
        self._before: dict[signal.Signals, Handler] = {}

    def on_training_start(self, run: Run) -> None:
        self._catch_signals()

    def cut_short(self, work: Callable[[], ResultT]) -> ResultT | None:
        """Return `work()`; None if a signal ended it, during the training or after it. For work that changes nothing."""
        # During a training the handlers are installed already, and must stay after the evaluation.
        alone = not self._before
        if alone:
            self._catch_signals()
        self._at_once = True
        try:
            return work()
        except KeyboardInterrupt:
            if not self.interrupted:
                # the work raised it itself
                raise
            return None
        finally:
            self._at_once = False
            if alone:
                self._restore_handlers()

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            # signals reach the main thread only; the program that started this thread handles them
            return
        # nohup ignores SIGHUP
        caught = [n for n in SIGNALS if n != HANG_UP or signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._stop) for number in caught}

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        # First: a second signal stops the program, even while the line below waits for a slow terminal.
        self._restore_handlers()
        print_line("\nstopping; saving first (press Ctrl-C again to stop at once)", sys.stderr)
        # Elsewhere an exception could stop an update halfway, and the file saved next would hold its parts.
        if self._at_once:
            raise KeyboardInterrupt

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_report(self, run: Run, report: Report) -> bool | None:
        return not self.interrupted

    def on_training_end(self, run: Run) -> None:
        self._restore_handlers()
