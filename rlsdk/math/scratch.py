"""Memory that large temporaries use again and again: fresh pages from the system cost more than the arithmetic on them."""

from __future__ import annotations

import math

from torch import Tensor


class Scratch:
    """Uninitialised tensors by name, kept between calls. Whoever owns it calls nothing twice at the same time."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}  # memory, and what it was last seen as

    def get(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The tensor called `name`: in the memory of earlier calls where dtype and device are the same and it is enough."""
        memory, seen = self._kept.get(name, (None, None))
        if memory is None or seen is None or memory.dtype != like.dtype or memory.device != like.device:
            memory = seen = like.new_empty(0)
        if seen.shape != shape:
            size = math.prod(shape)
            memory = memory if len(memory) >= size else like.new_empty(size)
            seen = memory[:size].view(shape)
            self._kept[name] = memory, seen
        return seen

    def __deepcopy__(self, memo: object) -> Scratch:
        return Scratch()
