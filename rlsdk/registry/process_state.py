"""The global state of the process, which is read before a plugin is imported and restored afterwards."""

from __future__ import annotations

import builtins
import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from re import Pattern
from types import FrameType
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypedDict, TypeVar

import attrs

from rlsdk.errors import one_line

if TYPE_CHECKING:
    from _typeshed import TraceFunction

StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")
Handler = Callable[[int, FrameType | None], object] | int | None
CollectorState = tuple[
    bool, tuple[int, int, int], int, list[Callable[[Literal["start", "stop"], dict[str, int]], object]]
]
InterpreterState = tuple[int, float, int, "TraceFunction | None", bool, int | None]
Filter = tuple[str, Pattern[str] | None, type[Warning] | tuple[type[Warning], ...], Pattern[str] | None, int]


class Guarded(Protocol):
    """A kind of state that is restored after a plugin's import."""

    def remember(self) -> Callable[[], str | None]:
        """Read the state, and return a function that restores it.

        That function returns a description of the change, or None if nothing had changed.
        """
        ...


def _before(before: StateT, now: StateT) -> StateT:
    return before


@attrs.frozen
class State(Generic[StateT]):
    """One kind of state. `get` reads it as a value that can be compared, `put` sets it."""

    name: str
    get: Callable[[], StateT]
    put: Callable[[StateT], object]
    merged: Callable[[StateT, StateT], StateT] = _before
    """(value before, value now) -> the value to set. Additions that a library may make stay in it."""

    def remember(self) -> Callable[[], str | None]:
        """See `Guarded`."""
        before = self.get()
        return lambda: self._restore(before)

    def _restore(self, before: StateT) -> str | None:
        try:
            now = self.get()
            wanted = self.merged(before, now)
            if wanted == now:
                return None
            self.put(wanted)
        except Exception as error:
            return f"changed {self.name} (cannot be put back: {one_line(str(error), 80)})"
        return f"changed {self.name}{_names(wanted, now)} (put back)"


def _names(wanted: object, now: object) -> str:
    """Return ": " and the names of the entries that differ between two dictionaries; an empty text for other values."""
    if not isinstance(wanted, dict) or not isinstance(now, dict):
        return ""
    every = {**wanted, **now}
    changed = [name for name in every if name not in now or name not in wanted or wanted[name] != now[name]]
    return f": {one_line(', '.join(sorted(map(str, changed))), 80)}" if changed else ""


def of_process() -> list[Guarded]:
    """Return the states of Python and of the process of the operating system."""
    return [
        State("Python's random state", random.getstate, random.setstate),
        State("environment variables", lambda: dict(os.environ), _put_environment),
        State("sys.path", lambda: list(sys.path), lambda value: sys.path.__setitem__(slice(None), value)),
        State("sys.argv", lambda: list(sys.argv), lambda value: sys.argv.__setitem__(slice(None), value)),
        State(
            "sys.meta_path",
            lambda: list(sys.meta_path),
            lambda value: sys.meta_path.__setitem__(slice(None), value),
            _with_additions,
        ),
        State("loaded modules", lambda: dict(sys.modules), sys.modules.update, _same_keys),
        State("builtins", lambda: dict(vars(builtins)), builtins.__dict__.update, _same_keys),
        State("the working directory", _cwd, _put_cwd),
        State("the umask", _umask, os.umask),
        State("signal handlers", _handlers, _put_handlers),
        State("blocked signals", _blocked, _put_blocked),
        State("the alarm", _alarm, _put_alarm),
        State("the garbage collector", _collector, _put_collector),
        State("interpreter settings", _interpreter, _put_interpreter),
        State("exception hooks", lambda: values_at(HOOKS), lambda value: put_values(HOOKS, value)),
        State("logging", _logging, _put_logging, _with_loggers),
        State("warning filters", _filters, _put_filters, _merged_filters),
        State("warning functions", lambda: values_at(WARNINGS), lambda value: put_values(WARNINGS, value)),
        State("the start method of processes", _start_method, _put_start_method),
        State("the locale", _locale, _put_locale),
        State("resource limits", _limits, _put_limits),
        State("CPU affinity", _affinity, _put_affinity),
    ]


HOOKS = (
    (sys, "excepthook"),
    (sys, "displayhook"),
    (sys, "unraisablehook"),
    (sys, "breakpointhook"),
    (threading, "excepthook"),
)
WARNINGS = ((warnings, "showwarning"), (warnings, "formatwarning"))


def values_at(places: Sequence[tuple[object, str]]) -> list[object]:
    """Return the values of attributes, each given as (object, name of the attribute)."""
    return [getattr(owner, name) for owner, name in places]


def put_values(places: Sequence[tuple[object, str]], values: Sequence[object]) -> None:
    """Set the attributes to `values`, which `values_at` has read."""
    for (owner, name), value in zip(places, values, strict=True):
        setattr(owner, name, value)


def _put_environment(value: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(value):
        del os.environ[name]
    os.environ.update({name: text for name, text in value.items() if os.environ.get(name) != text})


def _with_additions(before: list[ItemT], now: list[ItemT]) -> list[ItemT]:
    return now if all(finder in now for finder in before) else [*before, *(f for f in now if f not in before)]


def _same_keys(before: dict[str, ItemT], now: dict[str, ItemT]) -> dict[str, ItemT]:
    """Return the entries of `before`, and the entries of `now` that were added."""
    changed = {name: value for name, value in before.items() if name not in now or now[name] is not value}
    return {**now, **changed}


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed
        return None


def _put_cwd(value: str | None) -> None:
    if value is None:
        raise RuntimeError("it had been removed before")
    os.chdir(value)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _handlers() -> dict[str, Handler]:
    valid = signal.valid_signals()
    return {kind.name: signal.getsignal(kind) for kind in signal.Signals if kind in valid}


def _put_handlers(value: Mapping[str, Handler]) -> None:
    for name, handler in value.items():
        kind = signal.Signals[name]
        if handler is not None and signal.getsignal(kind) is not handler:
            signal.signal(kind, handler)


def _blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, [])) if hasattr(signal, "pthread_sigmask") else set()


def _put_blocked(value: set[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, value)


def _alarm() -> bool:
    return hasattr(signal, "getitimer") and signal.getitimer(signal.ITIMER_REAL)[0] > 0.0


def _put_alarm(was_set: bool) -> None:
    if was_set:
        raise RuntimeError("the time it had left is not known")
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _collector() -> CollectorState:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)


def _put_collector(value: CollectorState) -> None:
    enabled, threshold, debug, callbacks = value
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    gc.callbacks[:] = callbacks


def _interpreter() -> InterpreterState:
    switches = sys.dont_write_bytecode, getattr(sys, "tracebacklimit", None)
    return sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.gettrace(), *switches


def _put_interpreter(value: InterpreterState) -> None:
    recursion, interval, digits, trace, sys.dont_write_bytecode, traceback = value
    sys.setrecursionlimit(recursion)
    sys.setswitchinterval(interval)
    sys.set_int_max_str_digits(digits)
    sys.settrace(trace)
    if traceback is None:
        sys.__dict__.pop("tracebacklimit", None)
    else:
        sys.tracebacklimit = traceback


class LoggingState(TypedDict):
    """The state of the root logger, of the module `logging`, and of each logger (name -> state)."""

    root: tuple[int, bool, list[logging.Handler]]
    disable: int
    exceptions: bool
    loggers: dict[str, tuple[int, bool, bool, list[logging.Handler]]]


def _logging() -> LoggingState:
    loggers = {n: each for n, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger)}
    states = {n: (each.level, each.propagate, each.disabled, list(each.handlers)) for n, each in loggers.items()}
    root = logging.root.level, logging.root.disabled, list(logging.root.handlers)
    return {
        "root": root,
        "disable": logging.root.manager.disable,
        "exceptions": logging.raiseExceptions,
        "loggers": states,
    }


def _with_loggers(before: LoggingState, now: LoggingState) -> LoggingState:
    return {**before, "loggers": {**now["loggers"], **before["loggers"]}}


def _put_logging(value: LoggingState) -> None:
    root = logging.root
    root.level, root.disabled, root.handlers[:] = value["root"]
    root.manager.disable, logging.raiseExceptions = value["disable"], value["exceptions"]
    for name, (level, propagate, disabled, handlers) in value["loggers"].items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate, logger.disabled, logger.handlers[:] = propagate, disabled, handlers


def _filters() -> Sequence[Filter]:
    return list(warnings.filters)


def _merged_filters(before: Sequence[Filter], now: Sequence[Filter]) -> Sequence[Filter]:
    """Return the filters of `before`, after the added ones for a message, a module or a category of a library.

    Plugins may add such filters, because libraries such as numpy add them when they are imported.
    """
    added = [entry for entry in now if entry not in before]
    own = [entry for entry in added if entry[1] or entry[3] or getattr(entry[2], "__module__", "") != "builtins"]
    return [*own, *before]


def _put_filters(value: Sequence[Filter]) -> None:
    warnings.simplefilter("default")  # so that Python forgets which warnings it has shown
    assert isinstance(warnings.filters, list)
    warnings.filters[:] = value


def _start_method() -> str | None:
    processes = sys.modules.get("multiprocessing")
    return processes.get_start_method(allow_none=True) if processes else None


def _put_start_method(value: str | None) -> None:
    sys.modules["multiprocessing"].set_start_method(value, force=True)


def _locale() -> str:
    import locale

    return locale.setlocale(locale.LC_ALL)


def _put_locale(value: str) -> None:
    import locale

    locale.setlocale(locale.LC_ALL, value)


def _limits() -> dict[int, tuple[int, int]]:
    try:
        import resource
    except ImportError:
        return {}
    kinds = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {kind: resource.getrlimit(kind) for kind in kinds}


def _put_limits(value: Mapping[int, tuple[int, int]]) -> None:
    import resource

    for kind, limit in value.items():
        if resource.getrlimit(kind) != limit:
            resource.setrlimit(kind, limit)


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _put_affinity(value: set[int]) -> None:
    os.sched_setaffinity(0, value)
