"""One seed for several environments."""

from __future__ import annotations

from rlsdk.runtime.seeding import derive


def seed_of(seed: int, index: int) -> int:
    """The seed of environment number `index`."""
    return derive(seed, "environment", index) % 2**31


class Seeds:
    """The seeds of a reset: of the seed given to it, else of the one given when the environments were made, once."""

    def __init__(self, first: int | None = None, offset: int = 0) -> None:
        """`offset`: the number of the first environment among those that share a seed."""
        self.first, self._pending, self.offset = first, first is not None, offset

    def first_pending(self) -> int | None:
        """The seed given when the environments were made, for the first reset; None afterwards."""
        seed = self.first if self._pending else None
        self._pending = False
        return seed

    def of(self, seed: int | None, count: int) -> list[int | None]:
        pending = self.first_pending()
        seed = pending if seed is None else seed
        return [None if seed is None else seed_of(seed, self.offset + i) for i in range(count)]
