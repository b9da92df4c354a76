"""Loads a plugin in a separate process with limits on time and memory, to test whether it works.

`rlsdk check` and `rlsdk doctor` use this. If the plugin's code exits, crashes or never returns, this affects only that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import attrs

from rlsdk.errors import PluginError, one_line
from rlsdk.registry import HOOKS, Plugin, PluginSideEffect, extensions_of, load, plugins
from rlsdk_testing.child_process import ChildProcess, end_with_parent

SECONDS = 20.0
"""The default time limit. Loading a plugin that imports no torch takes a tenth of a second."""
LOOK = 0.25
"""Seconds between checks of the memory of the child."""


@attrs.frozen(kw_only=True)
class Trial:
    """The outcome of loading a plugin."""

    problem: str | None = None
    """Why the plugin cannot be used; None if it loads."""
    effects: Sequence[str] = ()
    """The forbidden side effects of importing the plugin, such as printing."""


def tried(plugin: Plugin, seconds: float | None = None) -> Trial:
    """Load a plugin in a separate process with a time limit of `seconds` (default `SECONDS`), and return the outcome."""
    # a registered plugin exists only in this process; in a program with Python inside, there is no other one to start
    if plugin.problem is not None or plugin.is_registered or not sys.executable:
        return _load(plugin)
    with tempfile.TemporaryDirectory(prefix="rlsdk-trial-") as folder:
        out = Path(folder) / "answer.json"
        seconds = SECONDS if seconds is None else seconds
        process = ChildProcess(__name__, [plugin.qualified_id, str(out), str(seconds)])
        try:
            ended = _watched(process, seconds) + process.place_in(plugin.module.partition(".")[0])
        finally:
            # After success too: the plugin may have started processes that still run.
            process.end()
        try:
            # From a file, so that nothing a plugin prints or closes interferes.
            return Trial(**json.loads(out.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return Trial(problem=str(plugin.broken(f"importing it {ended}")))


def all_tried(chosen: Iterable[Plugin]) -> list[Trial]:
    """Load several plugins, up to four at the same time, each in a separate process, and return the outcomes."""
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(tried, chosen))


def require_loads(plugin: Plugin) -> Trial:
    """Load a plugin in a separate process, and return the outcome.

    Raises:
        PluginError: the plugin does not load.
    """
    trial = tried(plugin)
    if trial.problem is not None:
        raise PluginError(trial.problem)
    return trial


def _watched(process: ChildProcess, seconds: float) -> str:
    """Wait until the child ends, its time is over or it uses too much memory; return which, as text for a message."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(min(LOOK, seconds))
            return process.how_it_ended()
        if (excess := process.too_much_memory()) is not None:
            return excess
    process.ask_stack()
    return f"did not end within {seconds:g} s"


def child() -> None:
    """The main function of the child process: load one plugin, write the outcome to a file, and end the process."""
    name, out, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    # Before the plugin is imported, because it may replace this function.
    leave = os._exit
    threading.Thread(target=end_with_parent, args=(os.getppid(), leave, seconds), daemon=True).start()
    # A plugin that reads the command line must not take these for its own.
    sys.argv[1:] = []
    trial = _load(next(plugin for plugin in plugins() if plugin.qualified_id == name))
    # Whole or not at all: the parent may end this process while it writes.
    staged = out.with_suffix(".part")
    staged.write_text(json.dumps(attrs.asdict(trial)), encoding="utf-8")
    staged.replace(out)
    # Without cleaning up, because threads and exit functions of the plugin could block the end.
    leave(0)


def _load(plugin: Plugin) -> Trial:
    """Load a plugin in this process, with its settings and all its extensions."""
    with warnings.catch_warnings(record=True) as caught:
        # By default Python drops a warning that it has shown before.
        warnings.simplefilter("always")
        try:
            plugin.require_usable()
            if plugin.manifest is None or plugin.manifest.family is not None:
                from rlsdk.settings import describe  # imports cattrs

                describe(load(plugin.qualified_id).config_type)
            # what every process that asks for such extensions has imported before is not an effect of the plugin
            if plugin.manifest is not None and plugin.manifest.environments:
                import_module("gymnasium")
            if plugin.manifest is not None and plugin.manifest.kernels:
                import_module("rlsdk.runtime.process")  # torch, and the library that limits threads
            for kind in HOOKS:
                _check_offers(plugin, kind)
        except PluginError as error:
            return Trial(problem=str(error))
        except Exception as error:
            cause = one_line(f"{type(error).__name__}: {error}", 300)
            return Trial(problem=str(plugin.broken(f"its settings cannot be read: {cause}")))
    effects = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, PluginSideEffect))
    return Trial(effects=list(effects))


def _check_offers(plugin: Plugin, kind: str) -> None:
    listed = getattr(plugin.manifest, kind, ())
    if missing := sorted(set(listed) - set(extensions_of(plugin, kind))) if listed else []:
        raise plugin.broken(f"its manifest lists {kind} {missing}, its hook gives others")
