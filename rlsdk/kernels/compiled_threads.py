"""Threads that share the large products of compiled code. Results are the same for any number of threads."""

from __future__ import annotations

from ctypes import CDLL, c_void_p, cast
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import ThreadpoolController


class Threads:
    """The number of threads of one library. They are those of torch's OpenMP: further threads would need further cores."""

    def __init__(self, library: CDLL) -> None:
        self.library, self.used = library, 1

    def follow_torch(self) -> None:
        """Share products among as many threads as torch uses now. Without a known OpenMP, one thread computes them."""
        if (count := torch.get_num_threads()) != self.used:
            parallel = parallel_of_torch()
            self.library.use_threads(count if parallel else 1, parallel)
            self.used = count


threads_of = cache(Threads)
"""Returns the threads of a library, which is never unloaded."""


@cache
def parallel_of_torch() -> int | None:
    """Return the address of the function `GOMP_parallel` of torch's OpenMP; None if torch has another one, or none."""
    home = Path(torch.__file__).parents[1]
    pools = [Path(pool["filepath"]) for pool in ThreadpoolController().select(user_api="openmp").info()]
    if not pools:
        return None
    nearest = min(pools, key=lambda path: home not in path.parents)  # other packages may have loaded their own
    function = getattr(CDLL(str(nearest)), "GOMP_parallel", None)
    return None if function is None else cast(function, c_void_p).value
