"""Limits of work in the time of this machine: what is tested is compared with fixed work done beside it.

A limit in seconds fails where the machine is slow or the process is large, though the code is right.
"""

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

TEXT = json.dumps([[i, str(i)] for i in range(100_000)])
SMALL = 0.2  # processor seconds that no limit is below; the reference work is left out


def reference() -> float:
    """Processor seconds of reading 100,000 small lists, and of a full collection of what this process holds."""
    began = time.process_time()
    json.loads(TEXT)
    gc.collect()
    return time.process_time() - began


@contextmanager
def limited(factor: float = 20.0, what: str = "this") -> Iterator[None]:
    """The block takes less processor time than `factor` times the reference work, also where it raises.

    Raises:
        AssertionError: It took more.
    """
    began = time.process_time()
    try:
        yield
    finally:
        took = time.process_time() - began
        if took > SMALL:
            beside = reference()
            assert took < factor * beside, f"{what} took {took:.1f} s, {took / beside:.0f} times the reference work"
