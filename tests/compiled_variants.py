"""The compiled libraries that this processor can run."""

from __future__ import annotations

from ctypes import CDLL

import pytest
import torch

from rlsdk_kernels import compiled_library
from rlsdk_kernels.compiled_library import may_compile

CAPABILITY = torch.backends.cpu.get_cpu_capability().lower()
RUNNABLE = {"avx512": ["default", "avx2", "avx512"], "avx2": ["default", "avx2"]}.get(CAPABILITY, ["default"])
needs_library = pytest.mark.skipif(not may_compile(), reason="there are no compiled kernels, or they are off")


def loaded(name: str) -> CDLL:
    """Load the library with this name."""
    found = compiled_library.load(compiled_library.FOLDER / f"kernels-{name}.so")
    assert found is not None
    return found
