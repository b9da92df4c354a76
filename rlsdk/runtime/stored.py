"""Functions that read counts, tensors and random generators from a stored state and check them; it may come from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.tree import leaves, map_tensors, numbered

T = TypeVar("T")
MERSENNE_WORDS = 624
"""How many numbers the state of torch's CPU generator (Mersenne Twister) holds."""
CPU_BYTES, CUDA_BYTES = 5056, 16
"""The lengths of the states of torch's generators on the CPU and on a GPU."""
MAX_COUNT = 2**62


def count_in(state: Mapping[str, object], name: str, least: int = 0) -> int:
    """The count called `name` in a stored state.

    Raises:
        ValueError: it is not a whole number, is below `least`, or is larger than `MAX_COUNT`.
    """
    value = state[name]
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise ValueError(f"{name} = {value!r} is not a count")
    return value


def stored_like(node: T, stored: object) -> T:
    """The leaves that `rlsdk.tree.number` named, as a tree with the structure and the devices of `node`.

    Raises:
        ValueError: the number of leaves differs, or one has another shape or dtype.
    """
    if not isinstance(stored, Mapping) or not all(isinstance(leaf, Tensor) for leaf in stored.values()):
        raise ValueError("the stored values are not tensors")
    mine, given = leaves(node), numbered(stored)
    shapes = [(tuple(leaf.shape), leaf.dtype) for leaf in given]
    if shapes != [(tuple(leaf.shape), leaf.dtype) for leaf in mine]:
        raise ValueError(f"the stored tensors are {shapes}, not {[(tuple(leaf.shape), leaf.dtype) for leaf in mine]}")
    values = iter(given)
    return map_tensors(lambda leaf: next(values).to(leaf.device), node)


def put_back(generator: Generator, state: object) -> None:
    """Check `state` and call `generator.set_state(state)`. torch reads memory at positions from the state, and those in a file
    may be wrong.

    A generator on a GPU cannot take the state of one on the CPU, nor the other way round. Then it is seeded from the state:
    its numbers are different from those that it has drawn before, and the same whenever the same state is put back.

    Raises:
        ValueError: the state is not a valid state of a generator.
    """
    fresh = generator.get_state()
    lengths = {(len(fresh),), (CPU_BYTES,), (CUDA_BYTES,)}
    if (
        not isinstance(state, Tensor)
        or state.dtype != torch.uint8
        or tuple(state.shape) not in lengths
        or not state.is_cpu
    ):
        raise ValueError(f"a generator's state is {len(fresh)} bytes")
    if len(state) != len(fresh):
        digest = hashlib.blake2b(state.contiguous().numpy().tobytes(), digest_size=7).digest()
        generator.manual_seed(int.from_bytes(digest, "little"))
        return
    if generator.device.type == "cpu":
        layout = state.contiguous().numpy()
        left, seeded = (int(number) for number in layout[8:16].view(np.int32))
        words = layout[16 : 24 + 8 * MERSENNE_WORDS].view(np.uint64)
        place = int(words[0])
        if not (seeded == 1 and 0 < left <= MERSENNE_WORDS and place <= MERSENNE_WORDS + 1 - left):
            raise ValueError(f"a generator's state stands at {place} with {left} numbers left of {MERSENNE_WORDS}")
        if not words[1:].any() or (words[1:] >> np.uint64(32)).any():
            raise ValueError("a generator's state holds no random numbers")
    elif len(state) == CUDA_BYTES and int(state.contiguous().numpy()[8:].view(np.int64)[0]) % 4:
        raise ValueError("a generator's state stands between two draws")
    generator.set_state(state.contiguous())
