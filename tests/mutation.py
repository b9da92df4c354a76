"""Mutation testing of the core: change one place of the code, and see whether a test fails.

python -m tests.mutation trace               run all tests once, and note the lines of the five folders that each runs
python -m tests.mutation run --sample 500    change one place at a time, and run the tests that reach it, fastest first
python -m tests.mutation list                every mutant, without a test

The tests are imported once. Each mutant gets a fork of that process, in which the functions of the mutated file have the
mutant's code. Modules that are imported later, in new processes too, come from the mutant's code by an import hook.
A mutant of what runs at import, such as a default value, gets a process that has imported no test yet.
Results are appended to a file, one mutant per line: run the command again to go on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation_processes import FOLDERS, MUTANT, ROOT, SITE, TRACES, begin, functions, runs_at_import, swap

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
"""Operator -> the one that replaces it. Annotations such as `int | None` have neither."""
BUDGET = 20.0
"""Seconds of tests that a mutant gets from `make test`, and as many from `make test-rest`, by their times without a mutant."""
NEAREST = 100
"""Tests that a mutant gets that needs a process of its own."""
LONGEST_WAIT, LONGEST_FACTOR = 60.0, 30.0
"""A test hangs if it takes so many seconds, and so many times its processor time; other processes may take turns."""
MEMORY = 6 << 30
"""Bytes that a process may take, as a mutant may ask for all memory of the machine."""
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]


@dataclass(frozen=True)
class Mutant:
    """One changed place of one file."""

    file: str
    scope: str
    """The class and function that the place is in."""
    old: str
    new: str
    nth: int
    """How many places of the scope before this one have the same change."""
    lines: tuple[int, ...]
    place: int
    """Which node of the file, in the order of `ast.walk`."""
    variant: int

    def tree(self) -> ast.Module:
        """The whole changed file, with the lines of the file."""
        tree = ast.parse((ROOT / self.file).read_text())
        node = list(ast.walk(tree))[self.place]
        _replace(node, changed(node)[self.variant])
        return tree

    def codes(self) -> tuple[CodeType, CodeType]:
        """The code of the file before and after the change."""
        trees = ast.parse((ROOT / self.file).read_text()), self.tree()
        return compile(trees[0], str(ROOT / self.file), "exec"), compile(trees[1], str(ROOT / self.file), "exec")

    def key(self) -> str:
        """What names this change in another version of the code, too."""
        return f"{self.file} {self.scope} #{self.nth}: {self.old} -> {self.new}"

    def __str__(self) -> str:
        return f"{self.file}:{self.lines[0]}: {self.old.splitlines()[0][:70]}  ->  {self.new.splitlines()[0][:70]}"


def mutants(folders: Iterable[str] = FOLDERS) -> list[Mutant]:
    """All mutants of folders of the core, in the order of files and places."""
    files = [path for folder in folders for path in sorted((ROOT / "rlsdk" / folder).glob("*.py"))]
    return [mutant for path in files for mutant in mutants_of(path.relative_to(ROOT).as_posix(), path.read_text())]


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """The mutants of one file: another operator or constant, a statement less, the other branch."""
    tree, seen = ast.parse(text), defaultdict[tuple[str, str, str], int](int)
    scopes = dict(_scopes(tree, ""))
    for place, node in enumerate(ast.walk(tree)):
        for variant, fields in enumerate(changed(node)):
            old, before = _shown(node), {name: getattr(node, name) for name in fields}
            _replace(node, fields)
            new = _shown(node)
            _replace(node, before)
            if new != old:
                change = (scopes[node], old, new)
                seen[change] += 1
                lines = getattr(node, "test", node)
                span = tuple(range(lines.lineno, lines.end_lineno + 1))
                yield Mutant(file, *change, seen[change], span, place, variant)


def changed(node: ast.AST) -> list[dict[str, object]]:
    """The fields of a node that each of its mutants has."""
    match node:
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) | ast.AugAssign(op=operator):
            return [{"op": SWAPS[type(operator)]()}] if type(operator) in SWAPS else []
        case ast.Compare(ops=[operator]):
            return [{"ops": [SWAPS[type(operator)]()]}] if type(operator) in SWAPS else []
        case ast.Constant(value=bool() as value):
            return [{"value": not value}]
        case ast.Constant(value=int() | float() as number):
            return [{"value": number + 1}]
        case ast.If(test=test) | ast.IfExp(test=test):
            return [{"test": ast.UnaryOp(ast.Not(), test)}]
        case ast.Expr(value=ast.Call()):
            return [{"value": ast.Constant(None)}]
        case ast.Return(value=ast.expr()):
            return [{"value": ast.Constant(None)}]
    return []


def _scopes(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    yield node, scope
    name = getattr(node, "name", "") if isinstance(node, ast.ClassDef | ast.FunctionDef) else ""
    for child in ast.iter_child_nodes(node):
        yield from _scopes(child, f"{scope}.{name}".strip("."))


def _shown(node: ast.AST) -> str:
    return f"if {ast.unparse(node.test)}:" if isinstance(node, ast.If) else ast.unparse(node)


def _replace(node: ast.AST, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        if isinstance(value, ast.expr):
            ast.copy_location(value, node)
        setattr(node, name, value)
    ast.fix_missing_locations(node)


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

    def __init__(self, chosen: list[Mutant], tests: dict[str, KnownTest], results: Path, folder: Path) -> None:
        self.chosen, self.results, self.folder = chosen, results, folder
        self.sound: dict[str, bool] = {}
        """Tests that failed with a mutant: whether they pass without one."""
        self.reached = defaultdict[tuple[str, int], list[KnownTest]](list)
        for test in tests.values():
            for line in test.lines:
                self.reached[line].append(test)
        (folder / "sitecustomize.py").write_text(SITE)

    def tests_of(self, mutant: Mutant, at_import: bool = False) -> list[KnownTest]:
        """The tests that run the mutant's lines, fastest first: of `make test`, then of `make test-rest`, as many as fit.

        Lines that run at import belong to no test: then those of the mutant's folder that run any line of its file come first.
        """
        lines = [line for line in self.reached if line[0] == mutant.file and (at_import or line[1] in mutant.lines)]
        found = {test.name: test for line in lines for test in self.reached[line]}
        own = f"tests/{mutant.file.split('/')[1]}/"
        chosen: list[KnownTest] = []
        for rest in (False, True):
            left = BUDGET
            for test in sorted(
                found.values(), key=lambda test: (at_import and own not in test.name, test.seconds, test.name)
            ):
                if test.rest == rest and (left := left - test.seconds) > 0:
                    chosen.append(test)
        return chosen

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants instead of running the tests."""
        items, known = {item.nodeid: item for item in session.items}, functions()
        for mutant in self.chosen:
            codes = mutant.codes()
            at_import = runs_at_import(*codes)
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
        while (found := first_failure([(items[test.name], test.seconds) for test in tests], change)) is not None:
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


def trace(folder: Path, arguments: list[str]) -> None:
    """Run all tests once, each noting its lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITE)
    environment = {**os.environ, TRACES: str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-p", "tests.mutation_processes", *arguments]
    subprocess.run(command, env=environment, cwd=ROOT, check=False)


def run(sample: int, seed: int, keys: Path | None, traces: Path, results: Path) -> None:
    """Try a sample of the mutants, or those of a list, that have no result yet."""
    chosen = mutants()
    random.Random(seed).shuffle(chosen)
    done = {json.loads(line)["key"] for line in results.read_text().splitlines()} if results.exists() else set()
    listed = set(keys.read_text().splitlines()) if keys else None
    chosen = [each for each in chosen if listed is None or each.key() in listed][:sample]
    chosen = [each for each in chosen if each.key() not in done]
    tests = read_traces(traces)
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(chosen, tests, results, Path(name))
        files = {test.name.partition("::")[0] for mutant in chosen for test in trial.tests_of(mutant)}
        pytest.main([*OPTIONS, f"--basetemp={name}/tests", *sorted(files)], plugins=[trial])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["trace", "run", "list"])
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keys", type=Path, help="a file with the lines of `list` that are to be run")
    parser.add_argument("--traces", type=Path, default=Path("build/traces"))
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"))
    options, others = parser.parse_known_args()
    if options.command == "trace":
        trace(options.traces.absolute(), others or ["--ignore", "tests/repository"])
    elif options.command == "run":
        run(options.sample, options.seed, options.keys, options.traces, options.results.absolute())
    else:
        print("\n".join(mutant.key() for mutant in mutants()))


if __name__ == "__main__":
    main()
