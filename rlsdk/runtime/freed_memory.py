"""Lets freed memory stay in the process while agents train."""

from __future__ import annotations

from functools import cache

import numpy as np

SIZE = 16 * 2**20
"""Bytes. The batches of a gradient step need less than twice as many in most trainings."""


@cache  # once per process: the C library remembers it
def keep_freed_memory() -> None:
    """Make the C library keep up to 32 MiB of freed memory, instead of returning it to the system.

    The system clears each page that a process gets back. This took up to a tenth of the time of TQC and SAC, whose batches
    are allocated and freed in every gradient step. glibc holds back twice the size of the largest block that was freed, so
    a block is freed here. It is never written, so it takes no memory. Other C libraries, and a process with
    `MALLOC_TRIM_THRESHOLD_` in its environment, do not change.
    """
    np.empty(SIZE, np.uint8)
