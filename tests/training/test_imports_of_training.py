"""A training imports only what it uses: neither the library of tensor files nor toy environments (docs/memory.md)."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import io, sys
import rlsdk
from rlsdk.environments import make_vec_env

agent = rlsdk.make("ars", env=make_vec_env("CartPole-v1", 1)).learn(100)
unused = ("safetensors", "rlsdk_envs.toy.any_space", "rlsdk_testing", "rlsdk_lab", "rlsdk_interchange")
assert not [name for name in unused if name in sys.modules], [name for name in unused if name in sys.modules]
agent.save(file := io.BytesIO())
assert "safetensors" not in sys.modules  # rlsdk writes tensors itself
file.seek(0)
rlsdk.load(file)
assert "safetensors" in sys.modules
"""


@pytest.mark.full
def test_a_training_imports_no_library_of_files() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
