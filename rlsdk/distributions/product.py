"""The joint distribution of independent parts, for Dict and Tuple actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Generator, Tensor

from rlsdk.distributions.documented_members import explains_documented_members
from rlsdk.interfaces import Distribution

PartT = TypeVar("PartT")


@explains_documented_members
@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """The joint distribution of independent parts. Actions are a mapping or a tuple, as `parts` is."""

    parts: Mapping[str, Distribution] | tuple[Distribution, ...]

    def _pairs(self, other: Mapping[str, PartT] | Sequence[PartT]) -> list[tuple[Distribution, PartT]]:
        """(part, entry) pairs: each part with the entry of `other` (actions, or parts) that has the same key or position."""
        if isinstance(self.parts, Mapping) and isinstance(other, Mapping):
            return [(part, other[key]) for key, part in self.parts.items()]
        assert not isinstance(other, Mapping)
        return list(zip(self._each(), other, strict=True))

    def _nested(self, values: list[PartT]) -> Mapping[str, PartT] | tuple[PartT, ...]:
        return tuple(values) if isinstance(self.parts, tuple) else dict(zip(self.parts, values, strict=True))

    def _each(self) -> list[Distribution]:
        return list(self.parts if isinstance(self.parts, tuple) else self.parts.values())

    def sample(self, generator: Generator) -> Any:
        return self._nested([part.sample(generator) for part in self._each()])

    def mode(self) -> Any:
        return self._nested([part.mode() for part in self._each()])

    def log_prob(self, action: Any) -> Tensor:
        return _total([part.log_prob(own) for part, own in self._pairs(action)])

    def entropy(self) -> Tensor:
        return _total([part.entropy() for part in self._each()])

    def kl_divergence(self, other: Product) -> Tensor:
        """KL(self || other), [N]: the sum over the parts, which are independent."""
        return _total([part.kl_divergence(own) for part, own in self._pairs(other.parts)])


def _total(values: list[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
