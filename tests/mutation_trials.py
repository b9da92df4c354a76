"""Processes of the mutation test: one notes the lines that each test runs, others run tests with one mutant each.

The tests are imported once. Each mutant gets a fork of that process, in which the functions of the changed file have the
mutant's code. Modules that are imported later come from the mutant's text by an import hook, in new processes too.
A mutant of what runs at import, such as a default value, gets a new process.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from pluggy import HookimplMarker

if TYPE_CHECKING:
    import pytest

    from tests.mutation import Mutant

ROOT = Path(__file__).parents[1]
FOLDERS = ("training", "buffers", "updates", "agent", "storage")
TRACES, MUTANT = "RLSDK_TRACES", "RLSDK_MUTANT"
"""Environment variables: the folder for traces; the file of the core and the file with the mutant's text."""
NOTED = "noted.json"
"""The file of the traces' folder with the lines to note, by file of the core. Without it, all lines are noted."""
LONGEST = 15.0
"""Seconds of processor time after which a test is not traced to its end: no mutant would get as much."""
SITE = f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.mutation_trials import begin
del sys.path[0]
begin()
"""
"""The text of `sitecustomize.py` on the path of new processes."""
NEAREST = 20
"""Tests that a mutant gets that needs a process of its own."""
LONGEST_WAIT, LONGEST_FACTOR = 60.0, 30.0
"""A test hangs if it takes so many seconds, and so many times its processor time; other processes may take turns."""
MEMORY = 6 << 30
"""Bytes that a process may take, as a mutant may ask for all memory of the machine."""
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
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
        noted = Path(os.environ[TRACES], NOTED)
        self.noted = (
            {str(ROOT / file): set(lines) for file, lines in json.loads(noted.read_text()).items()}
            if noted.exists()
            else None
        )
        self.left_out = set[CodeType]()
        """Functions without a line to note."""
        self.failed = False

    def start(self) -> None:
        """Note lines from now on, in this thread and in those that start."""
        sys.settrace(self._called)
        threading.settrace(self._called)

    def write(self, test: str, **entries: Any) -> None:
        """Append the lines since the last call, and forget them."""
        sys.settrace(None)
        found = {Path(file).relative_to(ROOT).as_posix(): sorted(lines) for file, lines in self.lines.items() if lines}
        with self.file.open("a") as file:
            file.write(json.dumps({"test": test, **entries, "lines": found}) + "\n")
        for lines in self.lines.values():
            lines.clear()

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        lines = self.lines.get(code.co_filename)
        if lines is None or code in self.left_out:
            return None
        if self.noted is not None and self.noted.get(code.co_filename, set()).isdisjoint(
            line for *_, line in code.co_lines()
        ):
            self.left_out.add(code)
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


class Served(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):  # type: ignore[misc]
    """An import hook: one module of the core has the text of a mutant."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(file.removesuffix(".py").replace("/", "."), str(ROOT / file))
        self.text = text

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, name: str) -> CodeType:
        return compile(Path(self.text).read_text(), self.path, "exec", dont_inherit=True)


def paired(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Two versions of a file, class or function, and of the classes and functions in it that both have."""
    yield old, new
    nested = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new)]
    # a mutant may leave out a lambda or a comprehension
    if len(nested[0]) == len(nested[1]):
        for pair in zip(*nested, strict=True):
            yield from paired(*pair)


def runs_at_import(old: CodeType, new: CodeType) -> bool:
    """Whether two versions of a file differ in more than the bodies of functions, which can be swapped."""
    shells = [pair for pair in paired(old, new) if not pair[0].co_flags & CO_NEWLOCALS]
    return any(_without_functions(one) != _without_functions(other) for one, other in shells)


def _without_functions(code: CodeType) -> CodeType:
    consts = tuple(each.co_freevars if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=consts)


def functions() -> dict[str, list[FunctionType]]:
    """The functions of this process by the file of their code."""
    gc.unfreeze()  # the objects that conftest.py froze are not listed
    found = defaultdict[str, list[FunctionType]](list)
    for each in gc.get_objects():
        if type(each) is FunctionType:  # no isinstance: objects may pretend to be of another class, and warn
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return found


def swap(found: list[FunctionType], old: CodeType, new: CodeType) -> None:
    """Give functions of a file the code that they have in another version of it."""
    # positions, as two lambdas on one line have one name
    codes = {tuple(one.co_positions()): other for one, other in paired(old, new)}
    for function in found:
        code = codes.get(tuple(function.__code__.co_positions()), function.__code__)
        if code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code


@dataclass
class KnownTest:
    """What is known of a test without a mutant."""

    name: str
    seconds: float = 0.0
    rest: bool = False
    """Whether `make test` leaves it to `make test-rest`."""
    usable: bool = False
    lines: set[tuple[str, int]] = field(default_factory=set)


def read_traces(folder: Path) -> dict[str, KnownTest]:
    """Tests by name. A process that a test starts has an entry of its own."""
    tests: dict[str, KnownTest] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for entry in map(json.loads, path.read_text().splitlines()):
            test = tests.setdefault(entry["test"], KnownTest(entry["test"]))
            test.lines |= {(file, line) for file, lines in entry["lines"].items() for line in lines}
            if "seconds" in entry:
                test.seconds, test.rest, test.usable = entry["seconds"], entry["rest"], not entry["failed"]
    return {name: test for name, test in tests.items() if test.usable}


class Trial:
    """A plugin of pytest that runs, for each mutant, the tests that reach it, and appends what happened to a file."""

    def __init__(
        self, chosen: list[Mutant], tests: dict[str, KnownTest], results: Path, folder: Path, budget: float
    ) -> None:
        self.chosen, self.results, self.folder, self.budget = chosen, results, folder, budget
        self.sound: dict[str, bool] = {}
        """Tests that failed with a mutant: whether they pass without one."""
        self.reached = defaultdict[tuple[str, int], list[KnownTest]](list)
        for test in tests.values():
            for line in test.lines:
                self.reached[line].append(test)
        (folder / "sitecustomize.py").write_text(SITE)

    def tests_of(self, mutant: Mutant, at_import: bool = False) -> list[KnownTest]:
        """The tests that run the mutant's lines, fastest first: of `make test`, then of `make test-rest`, those that fit
        in the budget, seconds without a mutant for each of the two.

        Lines that run at import belong to no test: then those of the mutant's folder that run any line of its file come first.
        """
        lines = [line for line in self.reached if line[0] == mutant.file and (at_import or line[1] in mutant.lines)]
        found = {test.name: test for line in lines for test in self.reached[line]}
        own = f"tests/{mutant.file.split('/')[1]}/"
        chosen: list[KnownTest] = []
        for rest in (False, True):
            left = self.budget
            for test in sorted(
                found.values(), key=lambda test: (at_import and own not in test.name, test.seconds, test.name)
            ):
                if test.rest == rest and (left := left - test.seconds) > 0:
                    chosen.append(test)
        return chosen

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants instead of running the tests."""
        items, known = {item.nodeid: item for item in session.items}, functions()
        known_codes = [(mutant, mutant.codes()) for mutant in self.chosen]
        # those that need a process of their own take ten times as long, and come last
        for at_import, mutant, codes in sorted(
            ((runs_at_import(*codes), mutant, codes) for mutant, codes in known_codes), key=lambda each: each[0]
        ):
            tests = [test for test in self.tests_of(mutant, at_import) if self.sound.get(test.name, True)]
            if not tests:
                self.note(mutant, None, 0)
            elif at_import:
                self.note(mutant, self.in_new_process(mutant, tests), len(tests))
            else:
                tests = [test for test in tests if test.name in items]

                def change(mutant: Mutant = mutant, codes: tuple[CodeType, CodeType] = codes) -> None:
                    os.environ.update(self.served(mutant))
                    begin()
                    swap(known[codes[0].co_filename], *codes)

                self.note(mutant, self.failing(tests, items, change), len(tests))
        return True

    def failing(
        self, tests: list[KnownTest], items: dict[str, pytest.Item], change: Callable[[], None]
    ) -> KnownTest | None:
        """The first test that fails with a mutant and passes without it."""
        while (
            tests and (found := first_failure([(items[test.name], test.seconds) for test in tests], change)) is not None
        ):
            test = tests[found]
            if test.name not in self.sound:
                self.sound[test.name] = first_failure([(items[test.name], test.seconds)], lambda: None) is None
            if self.sound[test.name]:
                return test
            tests = tests[found + 1 :]
        return None

    def in_new_process(self, mutant: Mutant, tests: list[KnownTest]) -> KnownTest | None:
        """As `failing`, for a change of what runs at import."""
        nearest = tests[:NEAREST]
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-x", *(test.name for test in nearest)]
        environment = {**os.environ, **self.served(mutant)}
        try:
            limit = LONGEST_WAIT + LONGEST_FACTOR * sum(test.seconds for test in nearest)
            done = subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return nearest[0]
        if done.returncode == 0:
            return None
        failed = [test for test in nearest if f"FAILED {test.name}" in done.stdout]
        return failed[0] if failed else nearest[0]  # without a test that failed, the import did

    def served(self, mutant: Mutant) -> dict[str, str]:
        """Environment variables with which new processes import the mutant."""
        text = self.folder / "mutant.py"
        text.write_text(ast.unparse(mutant.tree()))
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {MUTANT: f"{mutant.file}{os.pathsep}{text}", "PYTHONPATH": path}

    def note(self, mutant: Mutant, by: KnownTest | None, tests: int) -> None:
        """Append one line to the results, and show the mutant."""
        outcome = ("rest" if by.rest else "fast") if by else "survived" if tests else "unreached"
        entry = {"key": mutant.key(), "line": mutant.lines[0], "outcome": outcome, "by": by and by.name, "tests": tests}
        with self.results.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{outcome:9}  {mutant}", flush=True)


def first_failure(tests: list[tuple[pytest.Item, float]], change: Callable[[], None]) -> int | None:
    """The number of the first test that fails, hangs or ends the process, in a fork that made a change first."""
    from _pytest.runner import runtestprotocol  # not above: processes that tests start import this file

    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()  # so that the processes that tests start end with this one
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        try:
            change()
            for number, (item, _) in enumerate(tests):
                os.write(writing, bytes([0]))
                following = tests[number + 1][0] if number + 1 < len(tests) else None
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                    os._exit(1)
            os.write(writing, bytes([1]))
        finally:
            os._exit(1)
    os.close(writing)
    begun = -1
    try:
        while select.select([reading], [], [], LONGEST_WAIT + LONGEST_FACTOR * tests[max(begun, 0)][1])[0]:
            message = os.read(reading, 1)
            if message == bytes([1]):
                return None
            if not message:
                break
            begun += 1
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return max(begun, 0)


def trace(folder: Path, chosen: list[Mutant] | None, arguments: list[str]) -> None:
    """Run all tests once, each noting its lines: all, or for some mutants those of functions that have one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    if chosen is not None:
        noted = defaultdict[str, list[int]](list)
        for mutant in chosen:
            noted[mutant.file] += mutant.lines
        (folder / NOTED).write_text(json.dumps(noted))
    (folder / "sitecustomize.py").write_text(SITE)
    environment = {**os.environ, TRACES: str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-p", "tests.mutation_trials", *arguments]
    subprocess.run(command, env=environment, cwd=ROOT, check=False)


def try_mutants(chosen: list[Mutant], traces: Path, results: Path, budget: float) -> None:
    """Import the tests that reach mutants, and try each mutant."""
    import pytest

    with tempfile.TemporaryDirectory() as name:
        trial = Trial(chosen, read_traces(traces), results, Path(name), budget)
        files = {test.name.partition("::")[0] for mutant in chosen for test in trial.tests_of(mutant)}
        pytest.main([*OPTIONS, f"--basetemp={name}/tests", *sorted(files)], plugins=[trial])
