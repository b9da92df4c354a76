"""A callback that ends a command-line run cleanly at Ctrl-C. Only the command line uses it: a library must not install signal
handlers."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from rlsdk.callbacks.callback import Callback
from rlsdk.records import Report
from rlsdk.runtime.output import print_line

if TYPE_CHECKING:
    from rlsdk.training.run import Run

ResultT = TypeVar("ResultT")
Handler = Callable[[int, FrameType | None], object] | int | None
"""A signal handler: a function, a constant of the module `signal`, or None if it was not installed from Python."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
HANG_UP = getattr(signal, "SIGHUP", None)


class StopOnInterrupt(Callback):
    """Stops training after the current round at the first Ctrl-C, SIGTERM or SIGHUP, and an evaluation in `cut_short` at once.
    A second signal is not caught and stops the program immediately."""

    def __init__(self) -> None:
        self.interrupted = False
        self._at_once = False
        self._before: dict[signal.Signals, Handler] = {}

    def on_training_start(self, run: Run) -> None:
        self._hold()

    def cut_short(self, work: Callable[[], ResultT]) -> ResultT | None:
        """Return `work()`; None if a signal ended it, during the training or after it. For work that changes nothing."""
        alone = not self._before
        if alone:
            self._hold()
        self._at_once = True
        try:
            return work()
        except KeyboardInterrupt:
            if not self.interrupted:  # the work raised it itself
                raise
            return None
        finally:
            self._at_once = False
            if alone:
                self._release()

    def _hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # signals reach the main thread only; the program that started this thread handles them
        caught = [n for n in SIGNALS if n != HANG_UP or signal.getsignal(n) != signal.SIG_IGN]  # nohup ignores SIGHUP
        self._before = {number: signal.signal(number, self._catch) for number in caught}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._release()
        print_line("\nstopping; saving first (press Ctrl-C again to stop at once)", sys.stderr)
        if self._at_once:
            raise KeyboardInterrupt

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_report(self, run: Run, report: Report) -> bool | None:
        return not self.interrupted

    def on_training_end(self, run: Run) -> None:
        self._release()
