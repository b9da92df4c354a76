"""The properties of this processor, and of torch's libraries on it, that determine the fastest kernel."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch


@cache
def _description() -> str:
    """The processor's name and, on Linux, its vendor."""
    info = Path("/proc/cpuinfo")  # `platform.processor` is empty on Linux
    return info.read_text(encoding="utf-8").partition("\n\n")[0] if info.exists() else platform.processor()


def maker() -> str:
    """The maker of the processor: `Intel`, `AMD`, or another name that Python knows."""
    return next((name for name in ("Intel", "AMD") if name in _description()), platform.machine())


def has_onednn() -> bool:
    """Whether this build of torch contains oneDNN."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_ahead_of_mkl() -> bool:
    """Whether this is an AMD processor with AVX-512, which MKL does not use."""
    return has_avx512() and "AuthenticAMD" in _description()


def has_avx512() -> bool:
    """Whether this processor has AVX-512 and torch uses it."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def has_avx2() -> bool:
    """Whether this processor has AVX2, or AVX-512 too, and torch uses it."""
    return torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}
