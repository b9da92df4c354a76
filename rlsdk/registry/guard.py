"""Protects the process while a plugin is imported: its output is captured, and what imports do change is restored.

What they hardly ever change, such as signal handlers, resource limits or the locale, only `rlsdk check` looks at, in a process
that ends afterwards (`rlsdk_testing.import_state`): to restore all that took 250 lines and 11 ms per plugin.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Generic, TypeVar

import attrs

from rlsdk.errors import one_line, shown

StateT = TypeVar("StateT")
LIBRARIES = ("numpy", "torch")


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
    # Python delivers signals to the main thread only, and a second alarm would replace the first.
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


@contextlib.contextmanager
def protected(plugin: str) -> Iterator[list[str]]:
    """Protect the process while the body of the `with` statement imports a plugin.

    Yields a list. On exit it is filled with descriptions of the side effects, and the state is restored. An exception of the
    body gets the side effects as a note.
    """
    output, effects, threads = _Output(), list[str](), list[threading.Thread]()
    # A library that is not loaded has no state yet; `_put_back` handles one that the plugin is the first to import.
    loaded = [name for name in LIBRARIES if sys.modules.get(name)]
    before = [(state, state.get()) for state in (*of_process(), *(s for name in loaded for s in of_library(name)))]
    try:
        with (
            _noting(threads),
            # Before the redirection below, because it must store the streams of the program.
            _streams(effects),
            _no_exit(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            yield effects
    except BaseException as error:
        _put_back(before, loaded, effects)
        error.add_note("\n".join(f"plugin {plugin} {effect}" for effect in effects))
        raise
    else:
        _put_back(before, loaded, effects)
    finally:
        if "torch" not in loaded and "torch" in sys.modules:
            effects.append("imported torch, which makes every listing slow")
        if text := output.getvalue().strip():
            effects.append(f"printed {shown(text, 80)}")
        if started := [thread.name for thread in threads if thread.is_alive()]:
            effects.append(f"started threads: {one_line(', '.join(started), 80)}")


@attrs.frozen
class ProcessState(Generic[StateT]):
    """One kind of state. `get` reads it as a value that can be compared, `put` sets it."""

    name: str
    get: Callable[[], StateT]
    put: Callable[[StateT], object]
    fresh: Callable[[], StateT] | None = None
    """The value after the import of its library; None if that is not known."""

    def restore(self, before: StateT) -> str | None:
        """Restore the value. Return a description of the change, or None if nothing had changed."""
        try:
            now = self.get()
            if now == before:
                return None
            self.put(before)
        except Exception as error:
            return f"changed {self.name} (cannot be put back: {one_line(str(error), 80)})"
        changed: list[str] = []
        if isinstance(before, dict) and isinstance(now, dict):
            changed = sorted(
                str(n) for n in {**before, **now} if (n in now, now.get(n)) != (n in before, before.get(n))
            )
        return f"changed {self.name}{': ' * bool(changed)}{one_line(', '.join(changed), 80)} (put back)"


AnyState = ProcessState[Any]
ProcessStates = list[AnyState]


def _put_back(before: list[tuple[AnyState, object]], loaded: list[str], effects: list[str]) -> None:
    effects.extend(effect for state, value in before if (effect := state.restore(value)) is not None)
    for name in LIBRARIES:
        if name not in loaded and sys.modules.get(name):  # the plugin was the first to import it
            with contextlib.suppress(Exception):  # that import may have failed halfway
                states = [(state, state.fresh()) for state in of_library(name) if state.fresh is not None]
                effects.extend(effect for state, value in states if (effect := state.restore(value)) is not None)
                if name == "numpy":
                    sys.modules[name].random.seed()  # from the system, as after its import: no value to compare with


def of_process() -> ProcessStates:
    """Return the states of Python and of the process."""
    modules, filters = dict(sys.modules), list(warnings.filters)

    def put_filters(_: object) -> None:
        added = [each for each in warnings.filters if each not in filters and _is_for_a_part(each)]
        warnings.simplefilter("default")  # so that Python forgets which warnings it has shown
        assert isinstance(warnings.filters, list)
        warnings.filters[:] = [*added, *filters]

    def changed_modules() -> dict[str, object]:
        return {name: sys.modules.get(name) for name in modules if sys.modules.get(name) is not modules[name]}

    return [
        ProcessState("Python's random state", random.getstate, random.setstate),
        ProcessState("environment variables", lambda: dict(os.environ), _put_environment),
        ProcessState("sys.path", lambda: list(sys.path), lambda value: sys.path.__setitem__(slice(None), value)),
        ProcessState("loaded modules", changed_modules, lambda _: sys.modules.update(modules)),
        ProcessState("the working directory", _cwd, _put_cwd),
        ProcessState("warning filters", lambda: [e for e in warnings.filters if not _is_for_a_part(e)], put_filters),
    ]


def of_library(name: str) -> ProcessStates:
    """Return the states of the library `name`, "numpy" or "torch", which must be loaded."""
    return _of_numpy(sys.modules[name]) if name == "numpy" else _of_torch(sys.modules[name])


def _of_numpy(numpy: ModuleType) -> ProcessStates:
    # As bytes, because `==` of arrays is an array, which has no truth value.
    def random_state() -> tuple[object, ...]:
        kind, keys, *rest = numpy.random.get_state()
        return kind, keys.tobytes(), *rest

    def put_random_state(value: tuple[object, ...]) -> None:
        kind, keys, *rest = value
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))

    usual = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    return [
        ProcessState("numpy's random state", random_state, put_random_state),
        ProcessState("numpy's error handling", numpy.geterr, lambda value: numpy.seterr(**value), lambda: usual),
    ]


def _of_torch(torch: ModuleType) -> ProcessStates:
    def put_device(value: str) -> None:
        # setting "cpu" would leave a torch function mode active, which every call of torch would go through
        torch.set_default_device(None if value == "cpu" else value)

    def gpus() -> list[bytes]:
        return [_bytes(each) for each in torch.cuda.get_rng_state_all()] if torch.cuda.is_initialized() else []

    def put_gpus(value: list[bytes]) -> None:
        if not value:
            raise RuntimeError("GPUs were not in use before")
        torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in value])

    return [
        ProcessState(
            "torch's random state",
            lambda: _bytes(torch.random.get_rng_state()),
            lambda value: torch.random.set_rng_state(torch.frombuffer(bytearray(value), dtype=torch.uint8)),
            lambda: _bytes(torch.Generator().get_state()),  # a new generator has the seed that torch begins with
        ),
        ProcessState("torch's random state on GPUs", gpus, put_gpus),
        ProcessState("torch's thread count", torch.get_num_threads, torch.set_num_threads),
        ProcessState("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, lambda: torch.float32),
        ProcessState("torch's default device", lambda: str(torch.get_default_device()), put_device, lambda: "cpu"),
        ProcessState("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled, lambda: True),
    ]


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.numpy().tobytes())


def _put_environment(value: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(value):
        del os.environ[name]
    os.environ.update({name: text for name, text in value.items() if os.environ.get(name) != text})


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed
        return None


def _put_cwd(value: str | None) -> None:
    if value is None:
        raise RuntimeError("it had been removed before")
    os.chdir(value)


def _is_for_a_part(entry: Sequence[object]) -> bool:
    """Return whether a warning filter is for a message, a module or a category of a library.

    Plugins may add such filters, because libraries such as numpy add them when they are imported.
    """
    return bool(entry[1] or entry[3]) or getattr(entry[2], "__module__", "") != "builtins"


@contextlib.contextmanager
def _streams(effects: list[str]) -> Iterator[None]:
    """Restore standard input, output and error after the body, if it closed or redirected them; add this to `effects`."""
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    # Copies of the numbers, because C code closes or redirects those.
    saved = {number: copy for number in (0, 1, 2) if (copy := _copied(number)) is not None}
    try:
        yield
    finally:
        for number, copy in saved.items():
            # By device and inode: the number of a stream stays the same when it is redirected.
            if _place(number) != _place(copy):
                os.dup2(copy, number)
                effects.append(f"closed or redirected {list(streams)[number]} (put back)")
            os.close(copy)
        for number, (name, stream) in enumerate(streams.items()):
            setattr(sys, name, stream)
            if getattr(stream, "closed", False):
                # Closing this stream later must not close the number, which C code uses too.
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
    """Let `os._exit` raise SystemExit inside the body: it would end a run without a word, and perhaps with success.

    Signals to the own process and crashes of C code do end it: the shell or `faulthandler` prints it.
    """
    host, leave = os.getpid(), os._exit

    def refuse(status: int) -> None:
        if os.getpid() != host:  # a process that the plugin started may end
            leave(status)
        raise SystemExit(f"os._exit({shown(status, 20)})")

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave
