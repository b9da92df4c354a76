"""The files, functions, code lines and calls of one training step, found by tracing it.

`python -m tests.training_trace` writes the list in docs/training-step.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np

import rlsdk
from rlsdk.callbacks import Callback
from rlsdk.environments import ActionMasker

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "training-step.md"
BEGIN, END = "<!-- traced: begin -->", "<!-- traced: end -->"
SOURCES = (str(ROOT / "rlsdk"), str(ROOT / "plugins"))


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
    """The Python calls of one round."""

    calls: int = 0
    codes: dict[CodeType, None] = field(default_factory=dict)
    """Functions of rlsdk and its plugins that ran, in the order of their first call."""

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function: counts the calls of Python functions."""
        if event != "call":
            return
        if frame.f_code.co_filename.startswith(SOURCES):
            self.calls += 1
            self.codes.setdefault(frame.f_code)

    @property
    def files(self) -> list[str]:
        """Files whose functions ran, relative to the repository, in the order of their first call."""
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
        return sum(map(self.lines_run_in, self.files))

    def lines_run_in(self, file: str) -> int:
        """Code lines of the functions of `file` that ran."""
        codes = (code for code in self.codes if code.co_filename == str(ROOT / file))
        return sum(len(set(_lines(code)) & code_lines(ROOT / file)) for code in codes)

    def rooms(self) -> dict[str, list[str]]:
        """Folder -> its files whose functions ran, in order."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            found.setdefault(str(Path(file).parent), []).append(file)
        return found


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


@dataclass(frozen=True)
class Case:
    """A training whose round is traced: algorithm, environment and settings."""

    algorithm: str
    env: str | Callable[[], Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    first: int = 2
    """Rounds before the traced one: warm-up, and objects that are made at first use."""
    steps: int = 1
    """Environment steps of a round."""

    def trace(self) -> Trace:
        """Trace one round: environment steps, their storage in a replay buffer or rollout, and the updates."""
        trace = Trace()
        env = self.env if isinstance(self.env, str) else self.env()
        model = rlsdk.make(self.algorithm, env=env, seed=0, **self.settings)
        model.learn((self.first + 2) * self.steps, callback=ProfiledRound(self.first, trace.called))
        return trace


def masked_cart_pole() -> Any:
    """CartPole with action masks that forbid nothing."""
    return ActionMasker(gymnasium.make("CartPole-v1"), lambda env: np.ones(2, bool))


REPLAY = {"buffer_size": 1000}
ROLLOUT = {"n_steps": 256, "batch_size": 64}
NORMALIZE = {"normalize": True}
CASES = {
    "TQC": Case("tqc", "Pendulum-v1", REPLAY, first=120),
    "TQC, normalised": Case("tqc", "Pendulum-v1", REPLAY | NORMALIZE, first=120),
    "PPO": Case("maskable-ppo", "CartPole-v1", ROLLOUT | {"use_masking": False}, steps=256),
    "PPO, normalised": Case("maskable-ppo", "CartPole-v1", ROLLOUT | NORMALIZE | {"use_masking": False}, steps=256),
    "PPO + masks + LSTM": Case("recurrent-ppo", masked_cart_pole, ROLLOUT, steps=256),
    "PPO + masks + LSTM, normalised": Case("recurrent-ppo", masked_cart_pole, ROLLOUT | NORMALIZE, steps=256),
}
"""Name on the page -> the training that is traced. PPO and its combinations use default epochs."""


@cache
def trace_of(name: str) -> Trace:
    """The trace of a case, made once, with the kernels of processors without AVX-512."""
    with patch("rlsdk.kernels.factory.has_avx2", lambda: False):
        return CASES[name].trace()


def page_section() -> str:
    """The generated part of docs/training-step.md."""
    totals = [
        "| one round of | files | code lines in them | lines of the functions run | calls per step |",
        "|---|---|---|---|---|",
    ]
    for name, case in CASES.items():
        trace = trace_of(name)
        calls = trace.calls / case.steps
        totals.append(
            f"| {name} | {len(trace.files)} | {trace.lines_of_files} | {trace.lines_of_functions} | {calls:.0f} |"
        )
    tqc = trace_of("TQC")
    rows = [f"| `{name}` | {', '.join(f'`{n}`' for n in tqc.functions_in(name))} |" for name in tqc.files]
    rooms = ["| a step of TQC in | files | code lines in them | lines of the functions run |", "|---|---|---|---|"]
    for room, files in tqc.rooms().items():
        whole = sum(len(code_lines(ROOT / file)) for file in files)
        rooms.append(f"| {room} | {len(files)} | {whole} | {sum(map(tqc.lines_run_in, files))} |")
    head = ["| file | functions of a step of TQC, in the order they first run |", "|---|---|"]
    return "\n".join([*totals, "", *rooms, "", *head, *rows])


def listed_files(page: str) -> list[str]:
    """The files in the generated part of the page."""
    section = page.split(BEGIN)[1].split(END, maxsplit=1)[0]
    return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]


def with_section(page: str, section: str) -> str:
    """The page with another generated part."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{section}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(), page_section()))
