"""Protects the process while a plugin is imported: its output is captured, and global state that it changed is restored."""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from re import Pattern
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar

import attrs

from rlsdk.errors import one_line, shown

if TYPE_CHECKING:
    from _typeshed import TraceFunction

StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")


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


# The global state of numpy and torch, which is restored after a plugin's import.
#
# It is read before the import if the library is loaded, else immediately after the plugin has imported the library.

LIBRARIES = ("numpy", "torch")


def of_library(name: str) -> list[Guarded]:
    """Return the states of the library `name`, "numpy" or "torch", which must be loaded."""
    return _of_numpy(sys.modules[name]) if name == "numpy" else _of_torch(sys.modules[name])


def _of_numpy(numpy: ModuleType) -> list[Guarded]:
    def random_state() -> tuple[object, ...]:
        kind, keys, *rest = numpy.random.get_state()
        return kind, keys.tobytes(), *rest

    def put_random_state(value: tuple[object, ...]) -> None:
        kind, keys, *rest = value
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))

    return [
        State("numpy's random state", random_state, put_random_state),
        State("numpy's error handling", numpy.geterr, lambda value: numpy.seterr(**value)),
        State("numpy's error callback", numpy.geterrcall, numpy.seterrcall),
        State("numpy's print options", numpy.get_printoptions, lambda value: numpy.set_printoptions(**value)),
    ]


def _of_torch(torch: ModuleType) -> list[Guarded]:
    def put_random_state(value: bytes) -> None:
        torch.random.set_rng_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))

    def deterministic() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def put_deterministic(value: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(value[0], warn_only=value[1])

    def put_device(value: str) -> None:
        # setting "cpu" would leave a torch function mode active, which every call of torch would go through
        torch.set_default_device(None if value == "cpu" else value)

    def flush_denormal() -> bool:
        return not bool((torch.tensor([1e-310], dtype=torch.float64, device="cpu") * 1).all())

    switches = [(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")]
    return [
        State("torch's random state", lambda: torch.random.get_rng_state().numpy().tobytes(), put_random_state),
        State("torch's random state on GPUs", lambda: _of_gpus(torch), lambda value: _put_gpus(torch, value)),
        State("torch's thread count", torch.get_num_threads, torch.set_num_threads),
        State("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        State("torch's default device", lambda: str(torch.get_default_device()), put_device),
        State("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State("torch's deterministic mode", deterministic, put_deterministic),
        State("torch's matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        State("torch's anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        State(
            "torch's autocast",
            lambda: torch.is_autocast_enabled("cpu"),
            lambda value: torch.set_autocast_enabled("cpu", value),
        ),
        State("torch's flushing of denormal numbers", flush_denormal, torch.set_flush_denormal),
        State("cudnn's settings", lambda: values_at(switches), lambda value: put_values(switches, value)),
    ]


def _of_gpus(torch: ModuleType) -> list[bytes]:
    if not torch.cuda.is_initialized():
        return []
    return [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]


def _put_gpus(torch: ModuleType, value: list[bytes]) -> None:
    if not value:
        raise RuntimeError("GPUs were not in use before")
    torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in value])


class _Watch(MetaPathFinder):
    """Calls `loaded` right after a library is imported, before the importing code continues."""

    def __init__(self, loaded: Callable[[str], None]) -> None:
        self.loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in LIBRARIES:
            return None
        for finder in list(sys.meta_path):
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self.loaded(spec.name)

        loader.exec_module = exec_module


@contextlib.contextmanager
def watched(loaded: Callable[[str], None]) -> Iterator[None]:
    """Inside the `with` statement, call `loaded` with the name of each library as soon as it has been imported."""
    watch = _Watch(loaded)
    sys.meta_path.insert(0, watch)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(watch)
