"""What processes of the mutation test do: note the lines that tests run, and import or swap the code of a mutant.

Only the standard library is imported here, as every process that a test starts imports it.
"""

from __future__ import annotations

import atexit
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from pluggy import HookimplMarker

ROOT = Path(__file__).parents[1]
FOLDERS = ("training", "buffers", "updates", "agent", "storage")
TRACES, MUTANT = "RLSDK_TRACES", "RLSDK_MUTANT"
"""Environment variables: the folder for traces; the file of the core and the file with the mutant's text."""
LONGEST = 15.0
"""Seconds of processor time after which a test is not traced to its end: no mutant would get as much."""
SITE = f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.mutation_processes import begin
del sys.path[0]
begin()
"""
"""The text of `sitecustomize.py` on the path of new processes."""
hook = HookimplMarker("pytest")


def begin() -> None:
    """What a new process does before anything else: serve the mutant, or note lines."""
    if MUTANT in os.environ:
        sys.meta_path.insert(0, Served(*os.environ[MUTANT].split(os.pathsep)))
    if TRACES in os.environ and "PYTEST_CURRENT_TEST" in os.environ:
        traces = Traces()
        traces.start()
        atexit.register(traces.write, os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])


class Traces:
    """A plugin of pytest that notes which lines of the folders each test runs, and its processor time."""

    def __init__(self) -> None:
        paths = [path for name in FOLDERS for path in (ROOT / "rlsdk" / name).glob("*.py")]
        self.lines: dict[str, set[int]] = {str(path): set() for path in paths}
        self.file = Path(os.environ[TRACES], f"{os.getpid()}.jsonl")
        self.failed = False

    def start(self) -> None:
        """Note lines from now on, in this thread and in those that start."""
        sys.settrace(self._called)
        threading.settrace(self._called)

    def write(self, test: str, **entries: Any) -> None:
        """Append the lines since the last call, and begin anew."""
        sys.settrace(None)
        found = {Path(file).relative_to(ROOT).as_posix(): sorted(lines) for file, lines in self.lines.items() if lines}
        with self.file.open("a") as file:
            file.write(json.dumps({"test": test, **entries, "lines": found}) + "\n")
        for lines in self.lines.values():
            lines.clear()

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        lines = self.lines.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def note(frame: FrameType, event: str, argument: object, add: Any = lines.add) -> Any:
            add(frame.f_lineno)
            return note

        return note(frame, event, argument)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    @hook(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        began, self.failed = sum(os.times()[:4]), False
        # processor time, as the guard of plugins sets the timer of real time
        signal.signal(signal.SIGVTALRM, _stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
        self.start()
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            rest = item.get_closest_marker("full") is not None
            seconds = round(sum(os.times()[:4]) - began, 3)
            self.write(item.nodeid, seconds=seconds, rest=rest, failed=self.failed)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {LONGEST:g} s")


def pytest_configure(config: Any) -> None:
    """Trace in the process that runs the tests."""
    if TRACES in os.environ and getattr(config.option, "dist", "no") == "no":
        config.pluginmanager.register(Traces())


class Served(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """An import hook: one module of the core has the text of a mutant."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(file.removesuffix(".py").replace("/", "."), str(ROOT / file))
        self.text = text

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, name: str) -> CodeType:
        return compile(Path(self.text).read_text(), self.path, "exec", dont_inherit=True)


def all_codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a module, and of all classes and functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from all_codes(constant)


def runs_at_import(old: CodeType, new: CodeType) -> bool:
    """Whether two versions of a file differ in more than the bodies of functions, which can be swapped."""
    pairs = list(zip(all_codes(old), all_codes(new), strict=False))
    same = all(one.co_qualname == other.co_qualname and one.co_freevars == other.co_freevars for one, other in pairs)
    shells = [pair for pair in pairs if not pair[0].co_flags & CO_NEWLOCALS]
    return not same or any(_without_functions(one) != _without_functions(other) for one, other in shells)


def _without_functions(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(each for each in code.co_consts if not isinstance(each, CodeType)))


def functions() -> dict[str, list[FunctionType]]:
    """The functions of this process by the file of their code."""
    gc.unfreeze()  # the objects that conftest.py froze are not listed
    found = defaultdict[str, list[FunctionType]](list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return found


def swap(found: list[FunctionType], old: CodeType, new: CodeType) -> None:
    """Give functions of a file the code that they have in another version of it."""
    # positions, as two lambdas on one line have one name
    codes = {tuple(one.co_positions()): other for one, other in zip(all_codes(old), all_codes(new), strict=False)}
    for function in found:
        function.__code__ = codes.get(tuple(function.__code__.co_positions()), function.__code__)
