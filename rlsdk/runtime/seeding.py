"""Named random streams that are derived from one seed. Global random state is neither read nor changed."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping

import numpy as np
from torch import Generator, Tensor

from rlsdk.errors import SettingsError, shown
from rlsdk.runtime.stored import put_back

MOST = 2**63 - 1


def fresh_seed() -> int:
    """A random seed from the operating system, for users who pass no seed. The run records it."""
    return secrets.randbelow(2**32)


def checked_seed(seed: int) -> int:
    """The seed, unchanged. Raises SettingsError if it is not a whole number that torch's generators accept."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= seed <= MOST:
        raise SettingsError(f"seed = {shown(seed, 60)} must be a whole number from 0 to {MOST}")
    return seed


def derive(seed: int, name: str, index: int = 0) -> int:
    """The seed of the random stream `name`. Streams are independent of one another and of the order in which they are made.

    Raises:
        SettingsError: `seed` is out of range.
    """
    sequence = np.random.SeedSequence(checked_seed(seed), spawn_key=(zlib.crc32(name.encode()), index))
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
        for name, generator in self._generators.items():
            generator.manual_seed(derive(seed, name))

    def state_dict(self) -> dict[str, Tensor]:
        """The state of every stream that was used, uint8 [S]."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        for name, value in state.items():
            put_back(self[name], value)
