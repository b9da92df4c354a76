"""Agent files with altered content and matching digests, over all algorithms, memories, wrappers and environments.

Each file loads and works, or is refused in bounded time and memory. Nothing outside the agent is written, imported or
set. Separate processes load the files, so that crashes are found too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.altered_files.subjects import SUBJECTS

FAST = 16
SLOW = 2_500
"""Cases per subject in the slow test, 50,000 in all."""
PROCESSES = 2


def attack(names: Sequence[str], first: int, last: int) -> Counter[str]:
    """Load the cases `first` to `last` of some subjects in another process, and count the outcomes."""
    command = [sys.executable, "-m", "tests.altered_files.child", str(first), str(last), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [line for line in lines if "problem" in line]
    assert problems == []
    return Counter(lines[-1]["counts"])


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
