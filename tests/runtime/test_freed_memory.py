"""Freed memory stays in a process that trains."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

TRAIN = "import rlsdk; rlsdk.make('ars', env='CartPole-v1', n_delta=1).learn(1)"
"""A short training."""
FAULTS = """
import resource
import numpy as np
import gymnasium, torch  # the largest block that importing them frees is the same without training

def allocate():
    return [np.ones(2**19) for _ in range(6)]  # 24 MiB

allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many pages the process got from the system to allocate the same blocks again."""


def pages_after(program: str) -> int:
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program + "\n" + FAULTS]
    return int(subprocess.check_output(command, text=True, env=environment))


@pytest.mark.full
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide otherwise")
def test_memory_that_training_freed_is_used_again() -> None:
    before, after = pages_after(""), pages_after(TRAIN)
    assert after * 10 < before, (before, after)
