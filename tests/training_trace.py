"""What one training step runs, found by tracing it: files, functions, code lines and calls.

`python -m tests.training_trace` writes the list in docs/training-step.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rlsdk.callbacks import Callback

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "training-step.md"
BEGIN, END = "<!-- traced: begin -->", "<!-- traced: end -->"
SOURCES = (str(ROOT / "rlsdk"), str(ROOT / "plugins"))


@dataclass
class Trace(Callback):
    """Records the Python calls between the ends of two rounds of training."""

    first: int
    """Rounds to let pass before."""
    calls: int = 0
    codes: dict[CodeType, None] = field(default_factory=dict)
    """Functions of rlsdk and its plugins that ran, in the order of their first call."""
    rounds: int = 0

    def on_report(self, run: Any, report: Any) -> bool | None:
        self.rounds += 1
        if self.rounds == self.first:
            sys.setprofile(self._called)
        elif self.rounds > self.first:
            sys.setprofile(None)
            return False
        return None

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code.co_filename.startswith(SOURCES):
            self.calls += 1
            self.codes.setdefault(frame.f_code)

    @property
    def files(self) -> list[str]:
        """Files entered, from the root of the repository, in order."""
        return list(dict.fromkeys(str(Path(code.co_filename).relative_to(ROOT)) for code in self.codes))

    def functions_in(self, file: str) -> list[str]:
        """Named functions and methods of `file` that ran, in order."""
        names = (code.co_qualname for code in self.codes if code.co_filename == str(ROOT / file))
        return list(dict.fromkeys(name for name in names if "<" not in name))

    @property
    def lines_of_files(self) -> int:
        return sum(len(code_lines(ROOT / name)) for name in self.files)

    @property
    def lines_of_functions(self) -> int:
        return sum(len(set(_lines(code)) & code_lines(Path(code.co_filename))) for code in self.codes)


def _lines(code: CodeType) -> Iterator[int]:
    return (line for _, _, line in code.co_lines() if line is not None)


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text()
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        docstring = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if isinstance(node, ast.stmt) and not docstring:
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            lines.update(range(node.lineno, max(node.lineno, end) + 1))
    source = text.splitlines()
    return frozenset(n for n in lines if source[n - 1].strip() and not source[n - 1].strip().startswith("#"))


def trace_tqc(**settings: Any) -> Trace:
    """One step of TQC on Pendulum: a vector step, a row into the memory, one update."""
    from rlsdk_tqc import TQC

    trace = Trace(first=120)
    TQC("MlpPolicy", "Pendulum-v1", buffer_size=1000, seed=0, **settings).learn(400, callback=trace)
    return trace


def page_section() -> str:
    """The generated part of docs/training-step.md."""
    plain, normalised = trace_tqc(), trace_tqc(normalize=True)
    names = {name: plain.functions_in(name) for name in plain.files}
    rows = [f"| `{name}` | {', '.join(f'`{n}`' for n in functions)} |" for name, functions in names.items()]
    head = ["| file | functions, in the order they first run |", "|---|---|"]
    return "\n".join(
        [f"One step enters {len(plain.files)} files; with `normalize=True` {len(normalised.files)}.", "", *head, *rows]
    )


def listed_files(page: str) -> list[str]:
    """The files in the generated part of the page."""
    section = page.split(BEGIN)[1].split(END, maxsplit=1)[0]
    return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]


def with_section(page: str, section: str) -> str:
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{section}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(), page_section()))
