"""Ctrl-C in a command: it ends every command, and some print how to continue."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import _exit  # the function itself: the guard of plugins replaces `os._exit`
from types import FrameType

import typer

from rlsdk.runtime.output import print_line


@contextmanager
def interrupted(how_to_go_on: str) -> Iterator[None]:
    """End the command with one line of text and exit code 130 if the user presses Ctrl-C inside the block."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"interrupted; {how_to_go_on}", sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def heeded() -> Iterator[None]:
    """Inside the block, Ctrl-C is not lost in code that drops exceptions. (A signal that is ignored stays ignored.)

    While a module is imported, the process ends at once, with exit code 130: an exception in C++ code of torch that runs then
    was dropped in some attempts, and aborted the process in others. Nothing is half-written that a kill would not leave.
    Where Python itself drops exceptions, such as `__del__` and callbacks of weak references, the signal is sent again.
    """
    if threading.current_thread() is not threading.main_thread() or not _is_default():
        yield
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_default() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            _exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _repeat(dropped: sys.UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        again = threading.Timer(0.05, _thread.interrupt_main)  # inside this function it would be dropped again
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(dropped)
