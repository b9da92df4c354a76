"""Seeds of several environments, derived from one seed."""

from __future__ import annotations

from rlsdk.runtime.seeding import derive


def seed_of(seed: int, index: int) -> int:
    """The seed of environment number `index`, derived from `seed`."""
    return derive(seed, "environment", index) % 2**31


class Seeds:
    """Derives the seeds of a reset from its seed, or from the seed with which the environments were made.

    The latter is used once, for the first reset, and only if this reset has no seed.
    """

    def __init__(self, first: int | None = None, offset: int = 0) -> None:
        """`offset`: the number of the first environment among all environments that share the seed."""
        self.first, self._pending, self.offset = first, first is not None, offset

    def first_pending(self) -> int | None:
        """The seed with which the environments were made, at the first call; None at later calls."""
        seed = self.first if self._pending else None
        self._pending = False
        return seed

    def of(self, seed: int | None, count: int) -> list[int | None]:
        pending = self.first_pending()
        seed = pending if seed is None else seed
        return [None if seed is None else seed_of(seed, self.offset + i) for i in range(count)]
