"""Limits of processor time, relative to reference work that is measured on the same machine.

A limit in seconds would fail on a slow machine or in a large process, although the code is right.
"""

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

TEXT = json.dumps([[i, str(i)] for i in range(100_000)])
SMALL = 0.2  # processor seconds: work below this always passes, without the reference work


def reference() -> float:
    """Return the processor seconds for parsing 100,000 small JSON lists and for one full garbage collection."""
    began = time.process_time()
    json.loads(TEXT)
    gc.collect()
    return time.process_time() - began


@contextmanager
def limited(factor: float = 20.0, what: str = "this") -> Iterator[None]:
    """Require that the block takes less processor time than `factor` times the reference work, even if it raises.

    Raises:
        AssertionError: the block took more time.
    """
    began = time.process_time()
    try:
        yield
    finally:
        took = time.process_time() - began
        if took > SMALL:
            beside = reference()
            assert took < factor * beside, f"{what} took {took:.1f} s, {took / beside:.0f} times the reference work"
