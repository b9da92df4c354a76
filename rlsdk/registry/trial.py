"""Load a plugin in a separate process with a time limit, to test whether it works.

Commands that only show plugins use this. If the plugin's code exits, crashes or never returns, this affects only that process.
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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rlsdk.errors import PluginError, one_line
from rlsdk.registry.child_process import ChildProcess, end_with_parent
from rlsdk.registry.discovery import HOOKS, Plugin, plugins, unusable
from rlsdk.registry.guard import PluginSideEffect
from rlsdk.registry.loading import extensions_of, load

if TYPE_CHECKING:
    from rlsdk.settings.render import FieldDoc

SECONDS = 20.0
"""The default time limit. Loading a plugin that imports no torch takes a tenth of a second."""
LOOK = 0.25
"""Seconds between checks of the memory of the child."""


@attrs.frozen(kw_only=True)
class Trial:
    """The outcome of loading a plugin."""

    problem: str | None = None
    """Why the plugin cannot be used; None if it loads."""
    effects: tuple[str, ...] = ()
    """The forbidden side effects of importing the plugin, such as printing."""
    settings: tuple[dict[str, object], ...] = ()
    """The hyper-parameters of the plugin, each with name, type, default as text, help, unit, source and children."""


def tried(plugin: Plugin, seconds: float | None = None) -> Trial:
    """Load a plugin in a separate process with a time limit of `seconds` (default `SECONDS`), and return the outcome."""
    if plugin.problem is not None:
        return Trial(problem=str(unusable(plugin)))
    if plugin.is_registered or not sys.executable:  # it exists only in this process, or Python is embedded
        return _load(plugin)
    with tempfile.TemporaryDirectory(prefix="rlsdk-trial-") as folder:
        out = Path(folder) / "answer.json"
        ended = _run(plugin, out, SECONDS if seconds is None else seconds)
        try:
            context = json.loads(out.read_text(encoding="utf-8"))
            return Trial(
                problem=context["problem"], effects=tuple(context["effects"]), settings=tuple(context["settings"])
            )
        except (OSError, ValueError):
            return Trial(problem=f"{plugin.qualified_id} {plugin.version} is broken: importing it {ended}")


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


def _run(plugin: Plugin, out: Path, seconds: float) -> str:
    """Run the child process, and return how it ended, as text for a message."""
    process = ChildProcess(__name__, [plugin.qualified_id, str(out), str(seconds)])
    try:
        return _watched(process, seconds) + process.place_in(plugin.module.partition(".")[0])
    finally:
        process.end()


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
    leave = os._exit
    threading.Thread(target=end_with_parent, args=(os.getppid(), leave, seconds), daemon=True).start()
    sys.argv[1:] = []
    trial = _load(next(plugin for plugin in plugins() if plugin.qualified_id == name))
    staged = out.with_suffix(".part")
    staged.write_text(json.dumps(attrs.asdict(trial)), encoding="utf-8")
    staged.replace(out)
    leave(0)


def _load(plugin: Plugin) -> Trial:
    """Load a plugin in this process, with its settings and all its extensions."""
    docs: list[dict[str, object]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if plugin.manifest is None or plugin.manifest.family is not None:
                docs = _described(load(plugin.qualified_id).config_type)
            # what every process that asks for such extensions has imported before is not an effect of the plugin
            if plugin.manifest is not None and plugin.manifest.environments:
                import_module("gymnasium")
            if plugin.manifest is not None and plugin.manifest.kernels:
                import_module("rlsdk.runtime.threads")  # torch, and the library that limits threads
            for kind in HOOKS:
                _check_offers(plugin, kind)
        except PluginError as error:
            return Trial(problem=str(error))
        except Exception as error:
            cause = one_line(f"{type(error).__name__}: {error}", 300)
            return Trial(
                problem=f"{plugin.qualified_id} {plugin.version} is broken: its settings cannot be read: {cause}"
            )
    effects = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, PluginSideEffect))
    return Trial(effects=tuple(effects), settings=tuple(docs))


def _check_offers(plugin: Plugin, kind: str) -> None:
    listed = getattr(plugin.manifest, kind, ())
    if missing := sorted(set(listed) - set(extensions_of(plugin, kind))) if listed else []:
        raise PluginError(
            f"{plugin.qualified_id} is broken: its manifest lists {kind} {missing}, its hook gives others"
        )


def _described(config_type: type[object]) -> list[dict[str, object]]:
    from rlsdk.settings.render import describe

    return [_as_dict(doc) for doc in describe(config_type)]


def _as_dict(doc: FieldDoc) -> dict[str, object]:
    from rlsdk.settings.render import toml_value

    context = {name: str(getattr(doc, name)) for name in ("name", "type", "help", "unit", "source")}
    default = "required" if doc.required else f"default {toml_value(doc.default)}"
    return {**context, "default": default, "children": [_as_dict(each) for each in doc.children]}
