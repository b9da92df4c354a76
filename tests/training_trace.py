"""What a reader meets on five paths through the library: the distinct functions, files and classes that are entered.

The paths are one step of TQC with its update, one round of PPO, `Agent.load`, the constructor, and `rlsdk run`. Each path runs
once before it is traced, so imports and objects that are made at first use are not counted. Code that moves to another file
leaves the number of functions as it is.

`python -m tests.training_trace` writes the list in docs/training-step.md.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import rlsdk
from rlsdk.callbacks import Callback

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "training-step.md"
BEGIN, END = "<!-- traced: begin -->", "<!-- traced: end -->"
SOURCES = tuple(str(ROOT / name) for name in ("rlsdk", "plugins", "contrib_algos"))
NO_FUNCTIONS = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Code objects that are not functions to a reader. From Python 3.12 on most comprehensions have no code object."""
NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)


class ProfiledRound(Callback):
    """Sets `profile` with `sys.setprofile` for one round, and then stops the training."""

    def __init__(self, first: int, profile: Callable[[FrameType, str, Any], object]) -> None:
        """`first`: the number of rounds before the profiled one."""
        self.first, self.profile, self.rounds = first, profile, 0

    def on_report(self, run: Any, report: Any) -> bool | None:
        self.rounds += 1
        if self.rounds == self.first:
            sys.setprofile(self.profile)
        elif self.rounds > self.first:
            sys.setprofile(None)
            return False
        return None


@dataclass
class Trace:
    """The functions of rlsdk and its packages that one path enters."""

    codes: dict[CodeType, None] = field(default_factory=dict)
    """In the order of their first call; comprehensions and module bodies are left out."""

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and code.co_name not in NO_FUNCTIONS:
            self.codes.setdefault(code)

    @property
    def files(self) -> list[str]:
        """Files whose functions ran, relative to the repository, in the order of their first call."""
        return list(dict.fromkeys(_file(code) for code in self.codes))

    @property
    def classes(self) -> set[tuple[str, str]]:
        """(file, name) of the classes whose methods ran."""
        owners = ((_file(code), code.co_qualname.rpartition(".")[0]) for code in self.codes)
        return {(file, name) for file, name in owners if name and "<locals>" not in name}

    @property
    def numbers(self) -> tuple[int, int, int]:
        """How many functions, files and classes were entered."""
        return len(self.codes), len(self.files), len(self.classes)

    def functions_in(self, file: str) -> list[str]:
        """Functions and methods of `file` that ran, in order."""
        names = (code.co_qualname for code in self.codes if _file(code) == file)
        return list(dict.fromkeys(name for name in names if "<" not in name))


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(ROOT))


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


@dataclass(frozen=True)
class Round:
    """A training whose round is traced: environment steps, their storage in a replay buffer or rollout, and the updates."""

    algorithm: str
    env: str
    settings: Mapping[str, Any]
    first: int = 2
    """Rounds before the traced one: warm-up, and objects that are made at first use."""
    steps: int = 1
    """Environment steps of a round."""

    def trace(self) -> Trace:
        """Trace one round, from the end of one round to the end of the next."""
        trace = Trace()
        model = rlsdk.make(self.algorithm, env=self.env, seed=0, **self.settings)
        model.learn((self.first + 2) * self.steps, callback=ProfiledRound(self.first, trace.called))
        return trace


@dataclass(frozen=True)
class Second:
    """A path that runs twice; the second time it is traced."""

    prepared: Callable[[Path], Callable[[], object]]
    """Gets an empty folder, and returns the function to trace."""

    def trace(self) -> Trace:
        """Run the path, and run it again with a trace."""
        trace = Trace()
        with tempfile.TemporaryDirectory() as folder:
            run = self.prepared(Path(folder))
            run()
            with _profiled(trace):
                run()
        return trace


@contextmanager
def _profiled(trace: Trace) -> Iterator[None]:
    before = sys.getprofile()  # a debugger or a coverage tool
    sys.setprofile(trace.called)
    try:
        yield
    finally:
        sys.setprofile(before)


def _make(_: Path) -> Callable[[], object]:
    return lambda: rlsdk.make("tqc", env="Pendulum-v1", seed=0)


def _load(folder: Path) -> Callable[[], object]:
    from rlsdk_tqc import TQC

    TQC("MlpPolicy", "Pendulum-v1", seed=0).save(folder / "agent")
    return lambda: TQC.load(folder / "agent")


def _command(folder: Path) -> Callable[[], object]:
    from typer.testing import CliRunner

    from rlsdk.cli.main import app

    numbers = count()

    def run() -> None:
        out = str(folder / str(next(numbers)))
        done = CliRunner().invoke(app, ["run", "tqc", "--env", "Pendulum-v1", "--steps", "40", "--out", out])
        assert done.exit_code == 0, done.output

    return run


PATHS: dict[str, Round | Second] = {
    "one step of TQC with its update": Round("tqc", "Pendulum-v1", {"buffer_size": 1000}, first=120),
    "PPO: a rollout of 256 steps and its update": Round(
        "ppo", "CartPole-v1", {"n_steps": 256, "batch_size": 64}, steps=256
    ),
    "`TQC.load`": Second(_load),
    '`TQC("MlpPolicy", env)`': Second(_make),
    "`rlsdk run tqc`, 40 steps": Second(_command),
}
"""Name on the page -> what is traced."""
STEP, ROLLOUT = list(PATHS)[:2]
SAC = "one step of SAC with its update"
TABLES = {
    STEP: "functions of a step of TQC, in the order they first run",
    SAC: "functions of a step of SAC that TQC does not have",
    ROLLOUT: "functions of a rollout and update of PPO that TQC does not have",
}
"""Path -> the heading of its table on the page."""


@cache
def trace_of(name: str) -> Trace:
    """The trace of a path, made once, with the kernels of processors without AVX-512."""
    path = Round("sac", "Pendulum-v1", {"buffer_size": 1000}, first=120) if name == SAC else PATHS[name]
    with patch("rlsdk_kernels.choice.has_avx2", lambda: False):
        return path.trace()


def page_section() -> str:
    """The generated part of docs/training-step.md."""
    totals = ["| path | functions | files | classes |", "|---|---|---|---|"]
    totals += [f"| {name} | {' | '.join(map(str, trace_of(name).numbers))} |" for name in PATHS]
    return "\n\n".join(["\n".join(totals), *map(_table, TABLES)])


def rows_of(name: str) -> dict[str, list[str]]:
    """File -> functions that a path enters, in order; except for `STEP`, without those that `STEP` enters too."""
    trace = trace_of(name)
    known = set() if name == STEP else set(trace_of(STEP).codes)
    own = Trace({code: None for code in trace.codes if code not in known})
    return {file: functions for file in own.files if (functions := own.functions_in(file))}


def _table(name: str) -> str:
    rows = [f"| `{file}` | {', '.join(f'`{n}`' for n in functions)} |" for file, functions in rows_of(name).items()]
    return "\n".join([f"| file | {TABLES[name]} |", "|---|---|", *rows])


def listed_files(page: str) -> list[list[str]]:
    """The files in each table of functions in the generated part of the page."""
    section = page.split(BEGIN)[1].split(END, maxsplit=1)[0]
    tables = [table.splitlines() for table in section.split("| file |")[1:]]
    return [[line.split("`")[1] for line in lines if line.startswith("| `") and ".py`" in line] for lines in tables]


def with_section(page: str, section: str) -> str:
    """The page with another generated part."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{section}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(), page_section()))
