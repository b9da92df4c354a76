"""Mutation testing of the core: change one place of the code, and see whether the tests of its folder notice.

python -m tests.mutation --sample 20 --seed 0      20 mutants, by `make test` and then by `make test-rest`
python -m tests.mutation --list                    every mutant, without a test

A mutant runs in a copy of the checkout. One line shows each: killed by fast tests, killed by the others only, or survived.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("training", "buffers", "updates", "agent", "storage")
COPIED = ("rlsdk", "tests", "examples", "docs", "benchmarks", "conftest.py", "pyproject.toml", "README.md")
SELECTIONS = {"fast": "not slow and not full", "rest": "full and not slow"}
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
NO_TESTS = 5
"""The exit status of pytest if a selection has no test."""


@dataclass(frozen=True)
class Mutant:
    """One changed line of one file."""

    file: str
    line: int
    old: str
    new: str
    place: int
    """Which node of the file, in the order of `ast.walk`."""
    variant: int

    def text(self) -> str:
        """The whole changed file, without comments and blank lines."""
        tree = ast.parse((ROOT / self.file).read_text())
        node = list(ast.walk(tree))[self.place]
        _replace(node, changed(node)[self.variant])
        return ast.unparse(tree)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old[:70]}  ->  {self.new[:70]}"


def mutants(folders: Iterable[str] = FOLDERS) -> list[Mutant]:
    """All mutants of folders of the core, in the order of files and places."""
    files = [path for folder in folders for path in sorted((ROOT / "rlsdk" / folder).glob("*.py"))]
    return [mutant for path in files for mutant in mutants_of(path.relative_to(ROOT).as_posix(), path.read_text())]


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """The mutants of one file: another operator or constant, a statement less, the other branch."""
    for place, node in enumerate(ast.walk(ast.parse(text))):
        for variant, fields in enumerate(changed(node)):
            old, before = ast.unparse(node), {name: getattr(node, name) for name in fields}
            _replace(node, fields)
            new = ast.unparse(node)
            _replace(node, before)
            if new != old:
                yield Mutant(file, getattr(node, "lineno", 0), old.splitlines()[0], new.splitlines()[0], place, variant)


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


def _replace(node: ast.AST, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        setattr(node, name, value)
    ast.fix_missing_locations(node)


def killed(folder: Path, mutant: Mutant, selection: str, seconds: float) -> bool:
    """Whether the tests of the mutant's folder fail, or take several times as long."""
    path = folder / mutant.file
    before = path.read_text()
    path.write_text(mutant.text())
    try:
        return tested(folder, mutant.file.split("/")[1], selection, seconds) not in (0, NO_TESTS)
    finally:
        path.write_text(before)


def tested(folder: Path, name: str, selection: str, seconds: float) -> int:
    """The exit status of the tests of a folder; -1 if they take longer."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", SELECTIONS[selection]]
    try:
        done = subprocess.run(
            [*command, f"tests/{name}"], cwd=folder, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return -1
    return done.returncode


def main(folders: Iterable[str], sample: int, seed: int) -> None:
    """Run a sample of mutants and print what kills them."""
    chosen = random.Random(seed).sample(mutants(folders), sample)
    counts = dict.fromkeys(("fast", "rest", "survived"), 0)
    limits: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in COPIED:
            copied = shutil.copytree if (ROOT / each).is_dir() else shutil.copy
            copied(ROOT / each, folder / each)
        (folder / "plugins").symlink_to(ROOT / "plugins")
        (folder / "contrib_algos").symlink_to(ROOT / "contrib_algos")
        for mutant in chosen:
            room = mutant.file.split("/")[1]
            for selection in SELECTIONS:
                if (room, selection) not in limits:
                    began = time.monotonic()
                    assert tested(folder, room, selection, 3600) in (0, NO_TESTS), f"tests/{room} fail without a mutant"
                    limits[room, selection] = 30 + 4 * (time.monotonic() - began)
            found = [each for each in SELECTIONS if killed(folder, mutant, each, limits[room, each])][:1]
            counts[(found or ["survived"])[0]] += 1
            print(f"{(found or ['survived'])[0]:8}  {mutant}", flush=True)
    both = counts["fast"] + counts["rest"]
    print(f"make test kills {counts['fast']} of {sample}; with make test-rest, {both} of {sample}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="+", default=FOLDERS)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(map(str, mutants(options.folders))))
    else:
        main(options.folders, options.sample, options.seed)
