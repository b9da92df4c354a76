"""Altered files of every kind that the product reads. Agent files are altered with matching digests, over all algorithms,
memories, wrappers and environments.

Each file loads and works, or is refused in bounded time and memory. Nothing outside the agent is written, imported or
set. Separate processes load the files, so that crashes are found too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.altered_files.further_kinds import ALL
from tests.altered_files.subjects import SUBJECTS

FAST, FAST_OF_KIND, SLOW_OF_KIND = 16, 3, 400
SLOW = 2_500
"""Cases per subject in the slow test, 50,000 in all."""
PROCESSES = 2


def attack(names: Sequence[str], first: int, last: int, module: str = "child") -> Counter[str]:
    """Load the cases `first` to `last` of some subjects in another process, and count the outcomes."""
    command = [sys.executable, "-m", f"tests.altered_files.{module}", str(first), str(last), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [line for line in lines if "problem" in line]
    assert problems == []
    return Counter(lines[-1]["counts"])


@pytest.mark.full
def test_altered_files_work_or_are_refused() -> None:
    counts = attack(list(SUBJECTS), 0, FAST)
    assert counts["refused"] > FAST
    assert counts["loaded"] > FAST
    assert counts.total() == FAST * len(SUBJECTS)


@pytest.mark.slow
def test_50_000_altered_files() -> None:
    groups = [list(SUBJECTS)[start::PROCESSES] for start in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = pool.map(lambda names: attack(names, 1000, 1000 + SLOW), groups)
    counts = sum(found, Counter[str]())
    assert counts.total() >= 50_000 - SLOW, "without mujoco there is a subject less"
    assert counts["loaded"] > 5_000


def usable_kinds() -> list[str]:
    """The kinds of files whose libraries are installed."""
    return [name for name, kind in ALL.items() if not kind.needs or importlib.util.find_spec(kind.needs)]


@pytest.mark.full
def test_altered_files_of_every_kind_are_read_or_refused() -> None:
    names = usable_kinds()
    counts = attack(names, 0, FAST_OF_KIND, "others")
    assert counts["refused"] + counts["loaded"] == FAST_OF_KIND * len(names)
    assert counts["refused"] > len(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_many_altered_files_of_a_kind(name: str) -> None:
    if name not in usable_kinds():
        pytest.skip(f"{ALL[name].needs} is not installed")
    counts = attack([name], 1000, 1000 + SLOW_OF_KIND, "others")
    assert counts["refused"] + counts["loaded"] == SLOW_OF_KIND
