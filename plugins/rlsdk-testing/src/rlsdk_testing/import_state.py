"""Finds out what importing a plugin changes in a process. `plugin.import-is-free` runs this file in a fresh interpreter.

It imports neither torch nor the rest of this package, because it finds out whether the plugin imports torch. rlsdk itself
restores only what imports do change (`rlsdk.registry.guard`); here also the rest is read, before and after, and not restored.
"""

from __future__ import annotations

import builtins
import gc
import json
import locale
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from importlib import import_module


def state() -> dict[str, object]:
    """Return name -> value of the state of the process. Entries may be added to values that are tables."""
    import numpy

    umask = os.umask(0o077)
    os.umask(umask)
    loggers = {n: each for n, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger)}
    return {
        "sys.argv": list(sys.argv),
        "sys.meta_path": {id(finder): True for finder in sys.meta_path},
        "builtins": dict(vars(builtins)),
        "the umask": umask,
        "signal handlers": {
            kind.name: signal.getsignal(kind) for kind in signal.Signals if kind in signal.valid_signals()
        },
        "the garbage collector": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)),
        "interpreter settings": (
            sys.getrecursionlimit(),
            sys.getswitchinterval(),
            sys.get_int_max_str_digits(),
            sys.gettrace(),
            sys.dont_write_bytecode,
            getattr(sys, "tracebacklimit", None),
        ),
        "exception hooks": (
            sys.excepthook,
            sys.displayhook,
            sys.unraisablehook,
            sys.breakpointhook,
            threading.excepthook,
        ),
        "logging": (
            (logging.root.level, logging.root.disabled, list(logging.root.handlers)),
            (logging.root.manager.disable, logging.raiseExceptions),
        ),
        "loggers": {n: (each.level, each.propagate, each.disabled, list(each.handlers)) for n, each in loggers.items()},
        "warning functions": (warnings.showwarning, warnings.formatwarning),
        "the start method of processes": multiprocessing.get_start_method(allow_none=True),
        "the locale": locale.setlocale(locale.LC_ALL),
        "numpy's print options": numpy.get_printoptions(),
        "numpy's error callback": numpy.geterrcall(),
        **of_posix(),
    }


def of_posix() -> dict[str, object]:
    """Return the states that Windows lacks."""
    found: dict[str, object] = {}
    if hasattr(signal, "pthread_sigmask"):
        found["blocked signals"] = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    if hasattr(os, "sched_getaffinity"):
        found["CPU affinity"] = os.sched_getaffinity(0)
    if sys.platform != "win32":
        resource = import_module("resource")
        kinds = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
        found["resource limits"] = {name: resource.getrlimit(kind) for name, kind in kinds.items()}
    return found


def changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Return the names of the states that changed, sorted."""
    same = dict(after)
    for name, value in before.items():
        if isinstance(value, dict) and isinstance(now := after[name], dict):
            same[name] = {key: now.get(key) for key in value}
    return sorted(name for name in before if same[name] != before[name])


def main() -> None:
    """Load the plugin called `argv[1]`, with the `sys.path` in `argv[2]`, and print the names of what changed, as JSON."""
    name = sys.argv[1]
    sys.path[:] = json.loads(sys.argv[2])
    import numpy  # noqa: F401  # its import is none of the plugin's

    from rlsdk.registry import load

    before = state()
    load(name)  # what rlsdk restores, such as random states, it warns of, on the error output
    print(json.dumps([*changes(before, state()), *(each for each in ("torch", "gymnasium") if each in sys.modules)]))


if __name__ == "__main__":
    main()
