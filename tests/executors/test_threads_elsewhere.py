"""Worker processes and background threads compute with one thread and do not change the caller's number of threads."""

from __future__ import annotations

import torch
from threadpoolctl import threadpool_info

from rlsdk.executors import make_executor
from rlsdk.runtime.process import limited_threads
from rlsdk_parallel.executors import Background


def numbers(_: object) -> tuple[int, set[int]]:
    """Return (torch's number of threads, the numbers of threads of the BLAS libraries that numpy calls)."""
    return torch.get_num_threads(), {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


def test_a_process_has_one_thread() -> None:
    executor = make_executor("processes", 1)
    ((torch_has, numpy_has),) = executor.map(numbers, [None])
    executor.close()
    assert torch_has == 1
    assert numpy_has == {1}


def test_a_background_thread_leaves_the_threads_of_its_caller() -> None:
    background = Background()
    with limited_threads(2):
        found, _ = background.submit(lambda: numbers(None)).result()
        assert (found, torch.get_num_threads()) == (1, 2)
    background.close()
