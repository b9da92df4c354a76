"""Protects the process while a plugin is imported: its output is captured, and global state that it changed is restored."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rlsdk.errors import one_line, shown
from rlsdk.registry.library_state import LIBRARIES, of_library, watched
from rlsdk.registry.process_state import Guarded, of_process

Restore = Callable[[], str | None]
"""A function that restores one kind of state. It returns a description of the change, or None if nothing had changed."""


class PluginSideEffect(UserWarning):
    """Warns that a plugin did something at import that it must not do, such as printing or changing global state."""


class TookTooLong(BaseException):
    """Ends the code of a plugin that does not return. It is not an `Exception`, so that code which catches those ends too."""


@contextlib.contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the body of the `with` statement after some seconds.

    It uses the alarm of POSIX. Threads other than the main one have no limit, nor has code while the alarm is in use.
    C code that does not return to Python cannot be ended.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0:
        yield
        return

    def end(*_: object) -> None:
        raise TookTooLong(f"it did not return within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class _Output(io.StringIO):
    """A stream that collects what a plugin prints. The plugin cannot close it."""

    def close(self) -> None: ...

    @property
    def text(self) -> str:
        return self.getvalue().strip()


@contextlib.contextmanager
def protected(plugin: str) -> Iterator[list[str]]:
    """Protect the process while the body of the `with` statement imports a plugin.

    Yields a list. On exit it is filled with descriptions of the side effects, and the state is restored. An exception of the
    body gets the side effects as a note.
    """
    before, output, effects = list[Restore](), _Output(), list[str]()
    threads, torch_loaded = list[threading.Thread](), "torch" in sys.modules
    _remember(of_process(), before)
    for name in LIBRARIES:
        if name in sys.modules:
            _remember(of_library(name), before)
    try:
        with (
            _noting(threads),
            _streams(effects),
            _no_exit(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            watched(lambda name: _remember(of_library(name), before)),
        ):
            yield effects
    except BaseException as error:
        _put_back(before, effects)
        error.add_note("\n".join(f"plugin {plugin} {effect}" for effect in effects))
        raise
    else:
        _put_back(before, effects)
    finally:
        if not torch_loaded and "torch" in sys.modules:
            effects.append("imported torch, which makes every listing slow")
        if output.text:
            effects.append(f"printed {shown(output.text, 80)}")
        if started := [thread.name for thread in threads if thread.is_alive()]:
            effects.append(f"started threads: {one_line(', '.join(started), 80)}")


def _remember(states: list[Guarded], before: list[Restore]) -> None:
    """Read the states and append their restore functions to `before`. A state that cannot be read is left out."""
    for state in states:
        with contextlib.suppress(Exception):
            before.append(state.remember())


def _put_back(before: list[Restore], effects: list[str]) -> None:
    effects.extend(effect for restore in before if (effect := restore()) is not None)


@contextlib.contextmanager
def _streams(effects: list[str]) -> Iterator[None]:
    """Restore standard input, output and error after the body, if it closed or redirected them; add this to `effects`."""
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    saved = {number: copy for number in (0, 1, 2) if (copy := _copied(number)) is not None}
    try:
        yield
    finally:
        for number, copy in saved.items():
            if _place(number) != _place(copy):
                os.dup2(copy, number)
                effects.append(f"closed or redirected {list(streams)[number]} (put back)")
            os.close(copy)
        for number, (name, stream) in enumerate(streams.items()):
            setattr(sys, name, stream)
            if getattr(stream, "closed", False):
                again = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115  # it stays open
                setattr(sys, name, again)
                setattr(sys, f"__{name}__", again)
                effects.append(f"closed sys.{name} (opened again)")


def _copied(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:
        return None


def _place(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _noting(started: list[threading.Thread]) -> Iterator[None]:
    """Add the threads that the body starts to `started`. Threads that other threads of the program start are left out."""
    importing, start = threading.get_ident(), threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.get_ident() == importing:
            started.append(thread)
            if not thread.is_alive():
                thread.daemon = True  # an endless one would block the end of the process
        start(thread)

    threading.Thread.start = noted  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


@contextlib.contextmanager
def _no_exit() -> Iterator[None]:
    """Let the functions that end the process raise SystemExit inside the body: a plugin must not end it.

    C code still can. The command line then prints the place by `faulthandler`, except for SIGKILL.
    """
    host, importing = os.getpid(), threading.get_ident()
    own = (0, -1, os.getpid(), *([os.getpgrp()] if hasattr(os, "getpgrp") else []))
    places = [(os, "_exit"), (os, "abort"), (os, "kill"), (os, "killpg"), (signal, "raise_signal")]
    before = {(owner, name): getattr(owner, name) for owner, name in places if hasattr(owner, name)}

    def guarded(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def refuse(*given: Any, **named: Any) -> object:
            spared = name in ("kill", "killpg") and (abs(given[0]) not in map(abs, own) or given[1] == 0)
            # threads of executors end a process whose parent died
            spared |= name != "_exit" and threading.get_ident() != importing
            if spared or os.getpid() != host:  # another process; a child that the plugin started may end
                return function(*given, **named)
            values = ", ".join(shown(value, 20) for value in (*given, *named.values()))
            raise SystemExit(f"{'signal' if name == 'raise_signal' else 'os'}.{name}({values})")

        return refuse

    for (owner, name), function in before.items():
        setattr(owner, name, guarded(name, function))
    try:
        yield
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)
