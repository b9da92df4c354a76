"""Shared memory for large arrays: workers read the same numbers, and no memory remains when the program ends."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlsdk_parallel import Processes, shared_memory
from rlsdk_parallel.shared_memory import FIRST, LARGE, SharedArrays, SharedMemoryArray
from tests.in_processes import Item, look


def test_items_arrive_as_they_were_sent_whatever_their_size() -> None:
    pool = Processes(2)
    try:
        for columns in (3, 5_000, 400_000, 7):  # through the pipe, the first block, a larger one, and the pipe again
            rows = np.random.default_rng(0).standard_normal((4, columns)).astype(np.float32)
            common = np.arange(columns, dtype=np.float64)
            answers = pool.map(look, [Item(row, common, str(i)) for i, row in enumerate(rows)])
            for i, (first, second, writeable, note) in enumerate(answers):
                assert (first, second, note) == (float(rows[i].sum()), float(common.sum()), str(i))
                assert writeable == (rows[i].nbytes < LARGE)
    finally:
        pool.close()


def test_records_in_groups_are_lent_too() -> None:
    arrays, large = SharedArrays(), np.ones(LARGE)
    packed = arrays.pack([[Item(large, None, "a"), Item(large, None, "b")], [Item(large, None, "c")]])
    assert [[type(item.first) for item in group] for group in packed] == [
        [SharedMemoryArray, SharedMemoryArray],
        [SharedMemoryArray],
    ]
    assert [[item.note for item in group] for group in packed] == [["a", "b"], ["c"]]
    arrays.close()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6000, dtype=np.int64)[::2],  # strided
        np.asfortranarray(np.arange(6000.0).reshape(60, 100)),
        np.zeros((0, 7)),
        np.arange(9000, dtype=">f4"),
        np.array(["a" * 5000]),
    ],
)
def test_any_layout_and_dtype(array: Any) -> None:
    arrays = SharedArrays()
    (packed,) = arrays.pack([Item(array, None)])
    got = pickle.loads(pickle.dumps(packed)).first
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    arrays.close()


def test_what_items_share_is_stored_once_and_the_rest_is_left_alone() -> None:
    arrays, common = SharedArrays(), np.zeros(LARGE)
    small, objects = np.zeros(3), np.array([{}] * LARGE, dtype=object)
    items = [Item(common, small), Item(common, objects)]
    first, second = arrays.pack([*items, "text"])[:2]
    assert isinstance(first.first, SharedMemoryArray)
    assert first.first is second.first
    assert first.second is small
    assert second.second is objects
    assert items[0].first is common, "what was handed in must not change"
    assert arrays.pack([]) == []
    arrays.close()


def test_a_process_that_was_forked_does_not_take_the_memory_away() -> None:
    arrays = SharedArrays()
    (packed,) = arrays.pack([Item(np.ones(LARGE), None)])
    child = multiprocessing.get_context("fork").Process(target=arrays.close)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert pickle.loads(pickle.dumps(packed)).first.sum() == LARGE
    arrays.close()
    with pytest.raises(FileNotFoundError):
        SharedMemory(packed.first.place[0])


@pytest.mark.parametrize("free", [0, 2 * FIRST])
def test_too_little_shared_memory_is_no_obstacle(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_available", lambda: free)
    pool = Processes(2)
    try:
        for columns in (5_000, 2 * FIRST, 5_000):
            items = [Item(np.ones(columns, np.float32), np.zeros(1)) for _ in range(2)]
            assert [answer[0] for answer in pool.map(look, items)] == [columns] * 2
    finally:
        pool.close()


def test_no_shared_memory_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shared_memory, "SharedMemory", refuse)
    arrays, item = SharedArrays(), Item(np.ones(LARGE), None)
    assert arrays.pack([item]) == [item]
    arrays.close()


LEFT_OPEN = """
import numpy as np, sys
from rlsdk.environments import make_vec_env
from tests.in_processes import Item
def work(environments, items):
    return [float(item.first.sum()) for item in items]
if __name__ == "__main__":
    env = make_vec_env("CartPole-v1", 2, vectorization="async", workers=2, start_method=sys.argv[1])
    assert env.map(work, [Item(np.ones(300_000), i) for i in range(4)]) == [300_000.0] * 4
    print(env.workers._shared._memory.name)
"""


@pytest.mark.full
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_program_that_closes_nothing_leaves_nothing(method: str, tmp_path: Path) -> None:
    script, root = tmp_path / "script.py", Path(__file__).parents[3]
    script.write_text(LEFT_OPEN)
    done = subprocess.run(  # noqa: PLW1510  # the return code is asserted below
        [sys.executable, script, method], capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
    assert "Error" not in done.stderr, done.stderr
    with pytest.raises(FileNotFoundError):
        SharedMemory(done.stdout.strip())
