"""`Ring.history`, which finds the previous steps of an episode in a ring buffer, equals a search step by step."""

from __future__ import annotations

import random

import pytest
import torch

from rlsdk.buffers.rows import Ring


def walked(ring: Ring, start: int, count: int, oldest: int) -> tuple[list[int], bool]:
    """The positions of the last `count` steps up to `start`, and whether the buffer still has all of them."""
    positions, whole = [start], True
    for _ in range(count - 1):
        at = positions[-1]
        if ring.first[at]:
            positions.append(at)
        elif not whole or at // ring.envs == oldest:
            positions.append(at)
            whole = False
        else:
            positions.append((at - ring.envs) % (ring.rows * ring.envs))
    return positions[::-1], whole


@pytest.mark.parametrize("on_gpu", [False, True])
def test_histories_are_those_of_single_steps(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_gpu:  # there they are computed by torch, here by numpy
        monkeypatch.setattr("rlsdk.buffers.rows._array", lambda tensor: tensor)
    chance = random.Random(0)
    for seed in range(200):
        torch.manual_seed(seed)
        rows, envs, count = chance.randint(1, 12), chance.randint(1, 4), chance.randint(1, 6)
        ring = Ring(rows, envs, torch.rand(rows * envs) < chance.random())
        index, oldest = torch.arange(rows * envs), chance.randint(0, rows - 1)
        positions, whole = ring.history(index, count, oldest)
        expected = [walked(ring, start, count, oldest) for start in index.tolist()]
        assert positions.tolist() == [found for found, _ in expected]
        assert whole.tolist() == [there for _, there in expected]
