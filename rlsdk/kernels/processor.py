"""The properties of this processor, and of torch's libraries on it, that determine the fastest kernel."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

import torch


@cache
def _description() -> str:
    """The vendor and, on Linux, the family of this processor."""
    info = Path("/proc/cpuinfo")  # `platform.processor` is empty on Linux
    return info.read_text(encoding="utf-8").partition("\n\n")[0] if info.exists() else platform.processor()


def has_onednn() -> bool:
    """Whether this build of torch contains oneDNN."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_ahead_of_mkl() -> bool:
    """Whether this is an AMD processor with AVX-512, which MKL does not use."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in _description()


def is_limited() -> bool:
    """Whether this processor makes one multiplication of AVX-512 registers per cycle, as AMD's Zen 4 does.

    Compiled code then reaches the processor's limit, as torch's libraries do, and needs fewer passes over memory.
    """
    return is_ahead_of_mkl() and re.search(r"cpu family\s*: 25\b", _description()) is not None
