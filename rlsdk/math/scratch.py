"""Memory that large temporaries use again and again: fresh pages from the system cost more than the arithmetic on them."""

from __future__ import annotations

from torch import Tensor


class Scratch:
    """Uninitialised tensors by name, kept between calls. Whoever owns it calls nothing twice at the same time."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The tensor called `name`: that of the last call where shape, dtype and device are the same."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept[name] = like.new_empty(shape)
        return kept

    def __deepcopy__(self, memo: object) -> Scratch:
        return Scratch()
