"""Loads a plugin in a separate process with limits on time and memory, to test whether it works.

Commands that only show plugins use this. If the plugin's code exits, crashes or never returns, this affects only that process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

import attrs

from rlsdk.errors import PluginError, one_line
from rlsdk.registry.discovery import Plugin, plugins
from rlsdk.registry.guard import PluginSideEffect
from rlsdk.registry.loading import extensions_of, load
from rlsdk.registry.manifest import HOOKS
from rlsdk.runtime.memory import available_bytes, gigabytes

if TYPE_CHECKING:
    from rlsdk.settings.strict import FieldDoc

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
    settings: Sequence[dict[str, object]] = ()
    """The hyper-parameters of the plugin, each with name, type, default as text, help, unit, source and children."""


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
    docs: list[dict[str, object]] = []
    with warnings.catch_warnings(record=True) as caught:
        # By default Python drops a warning that it has shown before.
        warnings.simplefilter("always")
        try:
            plugin.require_usable()
            if plugin.manifest is None or plugin.manifest.family is not None:
                from rlsdk.settings.strict import describe  # imports cattrs

                docs = [_as_dict(doc) for doc in describe(load(plugin.qualified_id).config_type)]
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
    return Trial(effects=list(effects), settings=docs)


def _check_offers(plugin: Plugin, kind: str) -> None:
    listed = getattr(plugin.manifest, kind, ())
    if missing := sorted(set(listed) - set(extensions_of(plugin, kind))) if listed else []:
        raise plugin.broken(f"its manifest lists {kind} {missing}, its hook gives others")


def _as_dict(doc: FieldDoc) -> dict[str, object]:
    from rlsdk.settings.strict import toml_value

    context = {name: str(getattr(doc, name)) for name in ("name", "type", "help", "unit", "source")}
    default = "required" if doc.required else f"default {toml_value(doc.default)}"
    return {**context, "default": default, "children": [_as_dict(each) for each in doc.children]}


# Python processes that this one starts, with the processes that those start in turn.
#
# Each child process leads a new session, so that it can be ended together with all processes that it started.

ASK_STACK = getattr(signal, "SIGUSR1", None)
"""The signal that asks a child to write its stack; None on Windows."""
POLL, STACK = 0.05, 1.0
"""Seconds between checks of a child, and seconds that a hanging child has to write its stack."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from rlsdk.registry.trial import write_stacks; write_stacks(); from {module} import child; child()"
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)


class ChildProcess:
    """A new Python process that runs the function `child` of `module` with the `sys.path` of this one.

    The caller's `__main__` is not imported. So this works in notebooks, with `python -c` and in scripts without
    `if __name__ == "__main__":`. Its error output goes to a temporary file, with its stack if it crashes::

        process = ChildProcess("my_package.worker", ["fast"])
        try:
            process.popen.wait(20.0)
        finally:
            process.end()
    """

    MEMORY = 4 * 10**9
    """The memory limit, in bytes, of the process and those it starts; nine tenths of what is free if that is less."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
    ) -> None:
        """Start it. `arguments` are its `sys.argv[1:]`; the streams are those of `subprocess.Popen`."""
        # The child finds what this process would import, also in the folder of a notebook.
        path = json.dumps(list(map(str, sys.path)))
        # Below what is free: otherwise the system might end other processes first.
        self._memory = min(self.MEMORY, int(0.9 * (available_bytes() or self.MEMORY)))
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        """What it wrote to its error output."""
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START.format(module=module), path, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=self.errors,
            start_new_session=True,
        )

    def running(self) -> tuple[RunningProcess, ...]:
        """Return the processes of its session, also itself, and their descendants; none without `/proc`."""
        return _members(self.popen.pid)

    def end(self) -> None:
        """End it and all processes that it started."""
        # Descendants in a session of their own too, which the signal to the group does not reach.
        for process in self.running():
            process.end()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, signal.SIGKILL)
            else:
                self.popen.kill()
        self.popen.wait()
        self.errors.close()

    def how_it_ended(self) -> str:
        """Wait for its end, and return the meaning of its exit code, as text that begins with "ended the process".

        Raises:
            subprocess.TimeoutExpired: it still runs after 5 s.
        """
        code = self.popen.wait(5.0)
        if code >= 0:
            return f"ended the process with exit code {code}"
        name = signal.Signals(-code).name if -code in {int(kind) for kind in signal.Signals} else f"signal {-code}"
        return f"ended the process by {name}"

    def ask_stack(self) -> None:
        """Let it write its stack, which shows where it hangs; wait until it has."""
        if ASK_STACK is not None and self.popen.poll() is None:
            before, end = os.fstat(self.errors.fileno()).st_size, time.monotonic() + STACK
            self.popen.send_signal(ASK_STACK)
            while os.fstat(self.errors.fileno()).st_size == before and time.monotonic() < end:
                time.sleep(POLL)

    def place_in(self, package: str, begin: int = 0) -> str:
        """Return the function and line in which the code of `package` was when the process ended or hung.

        They are read from the stacks in its error output from byte `begin` on, innermost call first. Without a stack, return
        the last line.
        """
        self.errors.seek(begin)
        # A limit, because the plugin may have printed any amount.
        output = self.errors.read(1_000_000).decode("utf-8", "replace")
        for path, line, function in _FRAME.findall(output):
            _, folder, rest = path.replace("\\", "/").rpartition(f"/{package}/")
            if folder:
                return f" in {function} ({package}/{rest}, line {line})"
        lines = output.strip().splitlines()
        return f": {one_line(lines[-1], 200)}" if lines and not _FRAME.search(output) else ""

    def too_much_memory(self) -> str | None:
        """Return text about the process if it uses too much memory, with the processes it started; else None.

        It reads `/proc`, and returns None without it. A limit of the address space (`RLIMIT_AS`) is not used: it would also
        count memory that is reserved and never used, as by CUDA and threads. It would not count processes that it starts.
        """
        running = self.running()
        if sum(each.private_bytes() for each in running) <= self._memory:
            return None
        count = f", in {len(running)} processes" if len(running) > 1 else ""
        return f"used more than {gigabytes(self._memory)} of memory{count}"


def write_stacks() -> None:
    """Let this child write its stack to its error output if it crashes, or if the parent sends the signal `ASK_STACK`.

    `faulthandler.dump_traceback_later` is not used: its thread reads the frames of running threads, and so can crash.
    Stacks are written to a separate file descriptor, because standard error may be captured or closed.
    """
    errors = os.dup(2)
    faulthandler.enable(errors)
    if ASK_STACK is not None:
        faulthandler.register(ASK_STACK, errors, all_threads=False)


def end_with_parent(parent: int, leave: Callable[[int], object], seconds: float = float("inf")) -> None:
    """Wait until the parent process has ended or the time limit of `seconds` was exceeded by one second, then call `leave(1)`.

    A child process runs this in a thread, so that it ends when its parent is killed.
    """
    limit = time.monotonic() + seconds
    # A second later than the parent, which first asks this process for its stack.
    while os.getppid() == parent and time.monotonic() < limit + 1.0:
        time.sleep(0.2)
    leave(1)


@attrs.frozen
class RunningProcess:
    """A running process, with its id and those of its parent and session."""

    pid: int
    parent: int
    session: int
    command: str
    """The command line of the process."""

    def end(self) -> None:
        """End it by SIGKILL."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    def private_bytes(self) -> int:
        """Return the bytes of its memory that no file backs; 0 if it has ended or the system has no `/proc`."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="utf-8", errors="replace") as stream:
                lines = [line.split() for line in stream if line.startswith(("RssAnon:", "RssShmem:"))]
            return sum(int(words[1]) * 1024 for words in lines)
        except (OSError, ValueError, IndexError):
            return 0


def _members(leader: int) -> tuple[RunningProcess, ...]:
    """Return the processes of the session that `leader` leads, and their descendants; none without `/proc`."""
    everything = [found for name in _numbers() if (found := _look(int(name))) is not None]
    chosen = {each.pid: each for each in everything if each.session == leader or each.pid == leader}
    while more := {each.pid: each for each in everything if each.parent in chosen and each.pid not in chosen}:
        chosen |= more
    return tuple(chosen.values())


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _look(pid: int) -> RunningProcess | None:
    """Read the entry of process `pid` in `/proc`; None if the process has ended, even if it is still listed (zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            # After the last `)`: the name of a program may hold spaces and brackets.
            state, parent, _, session = stream.read().rpartition(")")[2].split()[:4]
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            command = stream.read().replace("\0", " ").strip()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else RunningProcess(pid, int(parent), int(session), command)
