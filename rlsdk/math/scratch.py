"""Memory that large temporaries use again and again: fresh pages from the system cost more than the arithmetic on them."""

from __future__ import annotations

import math

from torch import Tensor


class Scratch:
    """Uninitialised tensors by name, kept between calls. Whoever owns it calls nothing twice at the same time."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The tensor called `name`: in the memory of earlier calls where dtype and device are the same and it is enough."""
        kept, size = self._kept.get(name), math.prod(shape)
        if kept is None or len(kept) < size or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept[name] = like.new_empty(size)
        return kept[:size].view(shape)

    def __deepcopy__(self, memo: object) -> Scratch:
        return Scratch()
