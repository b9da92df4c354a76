"""Ctrl-C ends a command-line run cleanly. Only the command line uses this: a library must not take over signals."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from rlsdk.callbacks.callback import Callback
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.train import Run

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopOnInterrupt(Callback):
    """The first Ctrl-C (or SIGTERM) stops after the current round; the second one is not caught and stops at once."""

    def __init__(self) -> None:
        self.interrupted = False
        self._before: dict[signal.Signals, Any] = {}

    def on_training_start(self, run: Run) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # signals come to the main thread only, and whoever started this one decides what they mean
        self._before = {number: signal.signal(number, self._catch) for number in SIGNALS}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._release()
        print("\nstopping; saving first (press Ctrl-C again to stop at once)", file=sys.stderr, flush=True)

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_report(self, run: Run, report: Report) -> bool | None:
        return not self.interrupted

    def on_training_end(self, run: Run) -> None:
        self._release()
