"""Mutation testing of the core: change one place of the code, and see whether a test fails.

python -m tests.mutation trace               run all tests once, and note the lines of the five folders that each runs
python -m tests.mutation run --sample 500    change one place at a time, and run the tests that reach it, fastest first
python -m tests.mutation list                every mutant, without a test, and what is stored of those that were tried

Results are appended to a file, one mutant per line: the same command again continues where the last one ended.
`tests/mutation_trials.py` has the processes.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tests.mutation_trials import FOLDERS, ROOT, trace, try_mutants

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


STORED = ROOT / "tests" / "mutation_results.json"
"""The counts of docs/testing.md, and why each surviving mutant survives."""


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
                assert isinstance(lines, ast.expr | ast.stmt)
                span = tuple(range(lines.lineno, (lines.end_lineno or lines.lineno) + 1))
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


def sampled(sample: int, seed: int, listed: Path | None) -> list[Mutant]:
    """A sample of all mutants, or of those in a file with lines of `list`."""
    chosen = mutants()
    random.Random(seed).shuffle(chosen)
    keys = listed and {line.partition("\t")[0] for line in listed.read_text().splitlines()}
    return [each for each in chosen if not keys or each.key() in keys][:sample]


def verdicts() -> dict[str, str]:
    """Key -> what is stored of a mutant that survived a run: why it survives, or the test that kills it now."""
    stored = json.loads(STORED.read_text())
    found = {each["mutant"]: f"killed by {each['by']}" for each in stored["killed_later"]}
    found |= {each["mutant"]: f"{each['kind']}: {each['why']}" for each in stored["survivors"]}
    return {f"rlsdk/{key}": verdict for key, verdict in found.items()}


def page() -> str:
    """The table of docs/testing.md, from the stored results."""
    stored = json.loads(STORED.read_text())
    lines = [
        "| tests | mutants | killed by `make test` | by `make test-rest` alone | survive | killed |",
        "|---|---|---|---|---|---|",
    ]
    for run in stored["runs"]:
        killed = 1 - run["survived"] / run["mutants"]
        columns = [run["tests"], *(run[name] for name in ("mutants", "fast", "rest", "survived")), f"{killed:.1%}"]
        lines.append(f"| {' | '.join(map(str, columns))} |")
    counts = Counter(survivor["kind"] for survivor in stored["survivors"])
    lines += ["", "| survivors | mutants |", "|---|---|"]
    lines += [f"| {meaning} | {counts[kind]} |" for kind, meaning in stored["kinds"].items()]
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["trace", "run", "list"])
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keys",
        type=Path,
        help="a file with lines of `list`: run only these, or trace only the functions that have one",
    )
    parser.add_argument("--traces", type=Path, default=Path("build/traces"))
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"))
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests that a mutant gets at most")
    options, others = parser.parse_known_args()
    if options.command == "trace":
        chosen = sampled(options.sample, options.seed, options.keys) if options.keys else None
        trace(options.traces.absolute(), chosen, others or ["--ignore", "tests/repository"])
    elif options.command == "run":
        results = options.results.absolute()
        done = {json.loads(line)["key"] for line in results.read_text().splitlines()} if results.exists() else set()
        chosen = [each for each in sampled(options.sample, options.seed, options.keys) if each.key() not in done]
        try_mutants(chosen, options.traces, results, options.budget)
    else:
        known = verdicts()
        print("\n".join("\t".join(filter(None, (key, known.get(key)))) for key in (each.key() for each in mutants())))


if __name__ == "__main__":
    main()
