"""Protects the process while a plugin is imported: output is captured, and the state that is not the plugin's is put back."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from rlsdk.errors import one_line, shown
from rlsdk.registry.library_state import LIBRARIES, of_library, watched
from rlsdk.registry.process_state import Guarded, of_process

Restore = Callable[[], str | None]
"""Puts one state back; returns what had changed, None for nothing."""


class PluginSideEffect(UserWarning):
    """A plugin did something at import that it must not do; the process was protected."""


class _Output(io.StringIO):
    """What a plugin prints; it cannot be closed."""

    def close(self) -> None: ...

    @property
    def text(self) -> str:
        return self.getvalue().strip()


@contextlib.contextmanager
def protected(plugin: str) -> Iterator[list[str]]:
    """Runs the body; yields the list of side effects, which is filled on exit, and noted on an exception."""
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
    """Read the states; what cannot be read here is not guarded."""
    for state in states:
        with contextlib.suppress(Exception):
            before.append(state.remember())


def _put_back(before: list[Restore], effects: list[str]) -> None:
    effects.extend(effect for restore in before if (effect := restore()) is not None)


@contextlib.contextmanager
def _streams(effects: list[str]) -> Iterator[None]:
    """Standard input, output and error are open afterwards, and lead where they led."""
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
    """Adds the threads that the body starts to `started`; those of the host's other threads are not in it."""
    importing, start = threading.get_ident(), threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.get_ident() == importing:
            started.append(thread)
        start(thread)

    threading.Thread.start = noted  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


@contextlib.contextmanager
def _no_exit() -> Iterator[None]:
    """`os._exit` raises: a plugin must not end the process, least of all with the code of success."""
    leave, host = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != host:  # a child the plugin started
            leave(status)
        raise SystemExit(f"os._exit({shown(status, 20)})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
