"""The process that trains: its device, threads and random streams."""

from __future__ import annotations

import hashlib
import os
import secrets
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Generator, Tensor

from rlsdk.errors import SettingsError, shown
from rlsdk.tree import leaves, map_tensors, numbered

T = TypeVar("T")


def choose_device(wanted: str, policy: str, environments: str = "cpu") -> tuple[str, str]:
    """(device, reason) for the setting `wanted`. `auto` chooses an accelerator only for image policies, and if the device
    `environments` is one: many small networks train faster on the CPU, where the same seed also gives the same weights.

    Raises:
        SettingsError: this machine has no such device.
    """
    if torch.cuda.is_available():
        # weights are views of the vector of all parameters, so torch copies them for cuDNN; its advice would undo that
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk", UserWarning)
    if wanted == "auto":
        if not torch.cuda.is_available():
            return "cpu", "no GPU found"
        if environments != "cpu":
            return environments, "the environments are on this device"
        if policy.startswith("Cnn"):
            return "cuda", "image policies train faster on the accelerator"
        return "cpu", f"many networks of {policy} train faster on the CPU; compare with device='cuda'"
    try:
        device = torch.device(wanted)
        # torch.device accepts devices that this machine lacks; only an allocation fails.
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"device {wanted!r} cannot be used here: {reason}; try 'auto' or 'cpu'") from None
    # On this device the allocation above succeeds too.
    if device.type == "meta":
        raise SettingsError("device 'meta' holds no data; try 'auto' or 'cpu'")
    return str(device), "by the setting device"


def is_same_device(one: str, other: str) -> bool:
    """Whether two names mean one device: `cuda` is the GPU that torch uses by default."""
    return one == other or _with_index(one) == _with_index(other)


def _with_index(name: str) -> torch.device:
    device = torch.device(name)
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


# Limits on the number of threads that torch and numpy's linear algebra use.
#
# One thread is best for small networks: sharing a 64 x 64 matrix product with a second thread takes several times as
# long as the product itself. It takes ten times longer still if other processes use that core.


@cache
def _libraries() -> ThreadpoolController:
    """The thread pools of the libraries that are loaded now. Finding them takes milliseconds, so the result is cached."""
    return ThreadpoolController()


def limit_to_cores(threads: int | None) -> int | None:
    """The given number of threads, but at most the number of cores: further threads would only wait. Warns if it is reduced."""
    if threads is None or threads <= (cores := os.cpu_count() or threads):
        return threads
    warnings.warn(f"{threads} threads reduced to {cores}: the machine has {cores} cores", stacklevel=4)
    return cores


def use_one_thread_here() -> None:
    """Make torch compute with one thread for calls from the current Python thread.

    Otherwise OpenMP starts a second team of threads for the current thread. If two teams have more threads than there are
    cores, OpenMP threads sleep between operations, and the main thread's computations take twice as long.
    """
    # the first call in a Python thread sets its number of threads, so the limit must come after it
    torch.get_num_threads()
    _libraries().limit(limits=1, user_api="openmp")


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Use `threads` threads inside the block and restore the previous number afterwards; None changes nothing."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _libraries().limit(limits=threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


MAX_SEED = 2**63 - 1


def fresh_seed() -> int:
    """A random seed from the operating system, for users who pass no seed. The run records it."""
    return secrets.randbelow(2**32)


def checked_seed(seed: int) -> int:
    """The seed, unchanged. Raises SettingsError if it is not a whole number that torch's generators accept."""
    # `__index__` admits the integers of numpy. True would be the seed 1.
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= seed <= MAX_SEED:
        raise SettingsError(f"seed = {shown(seed, 60)} must be a whole number from 0 to {MAX_SEED}")
    return seed


def derive(seed: int, name: str, index: int = 0) -> int:
    """The seed of the random stream `name`. Streams are independent of one another and of the order in which they are made.

    Raises:
        SettingsError: `seed` is out of range.
    """
    # Not `hash`: that of a text differs from process to process.
    sequence = np.random.SeedSequence(checked_seed(seed), spawn_key=(zlib.crc32(name.encode()), index))
    # 63 bits, so that the result is a seed that `checked_seed` accepts.
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


class Streams:
    """The torch generators of one agent by name, each made at its first use: `streams["action"]`, `streams["replay"]`, ..."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.seed, self.device = seed, device
        self._generators: dict[str, Generator] = {}

    def __getitem__(self, name: str) -> Generator:
        if name not in self._generators:
            generator = Generator(device=self.device)
            generator.manual_seed(derive(self.seed, name))
            self._generators[name] = generator
        return self._generators[name]

    def reseed(self, seed: int) -> None:
        """Seed every generator again from `seed`, in place: the generators stay the same objects."""
        self.seed = seed
        # In place, because parts of the agent hold the generators.
        for name, generator in self._generators.items():
            generator.manual_seed(derive(seed, name))

    def state_dict(self) -> dict[str, Tensor]:
        """The state of every stream that was used, uint8 [S]."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        for name, value in state.items():
            put_back(self[name], value)


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
    # `isinstance` would accept true of JSON as the count 1.
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
    # Compared as a whole before anything is built: `map_tensors` takes the leaves by position only.
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
        # The layout in torch: seed (8 bytes), numbers left, seeded, position, words, the last normal number.
        layout = state.contiguous().numpy()
        left, seeded = (int(number) for number in layout[8:16].view(np.int32))
        words = layout[16 : 24 + 8 * MERSENNE_WORDS].view(np.uint64)
        place = int(words[0])
        if not (seeded == 1 and 0 < left <= MERSENNE_WORDS and place <= MERSENNE_WORDS + 1 - left):
            raise ValueError(f"a generator's state stands at {place} with {left} numbers left of {MERSENNE_WORDS}")
        # From words of 0 the generator draws 0 for ever; each word has 32 bits in 8 bytes.
        if not words[1:].any() or (words[1:] >> np.uint64(32)).any():
            raise ValueError("a generator's state holds no random numbers")
    elif len(state) == CUDA_BYTES and int(state.contiguous().numpy()[8:].view(np.int64)[0]) % 4:
        raise ValueError("a generator's state ends within a number")
    generator.set_state(state.contiguous())
