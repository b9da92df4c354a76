"""Builds the action head for a space. Nested spaces have nested heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from rlsdk.distributions import Product
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.networks.action_heads import ActionHead, DiscreteHead, GaussianHead, MultiBinaryHead, MultiDiscreteHead
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, choices_of

PartT = TypeVar("PartT")


class NestedHead(nn.Module):
    """The head of a Dict or Tuple space: one head per entry."""

    def __init__(self, space: Dict | Tuple, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        children = list(space.spaces.values()) if isinstance(space, Dict) else list(space.spaces)
        self.keys = tuple(space.spaces) if isinstance(space, Dict) else None
        self.heads, self.widths = nn.ModuleList(heads), [sum(choices_of(child)) for child in children]

    def forward(self, latent: Tensor, mask: Tensor | None) -> Product:
        masks = [None] * len(self.heads) if mask is None else torch.split(mask, self.widths, -1)
        found = [head(latent, own) for head, own in zip(self.heads, masks, strict=True)]
        return Product(self._nested(found))

    def to_environment(self, action: Any) -> Any:
        return self._nested([cast("ActionHead", h).to_environment(a) for h, a in self._pairs(action)])

    def from_environment(self, action: Any) -> Any:
        return self._nested([cast("ActionHead", h).from_environment(a) for h, a in self._pairs(action)])

    def _pairs(self, action: Mapping[str, PartT] | Sequence[PartT]) -> list[tuple[nn.Module, PartT]]:
        values = [action[key] for key in self.keys or ()] if isinstance(action, Mapping) else action
        return list(zip(self.heads, values, strict=True))

    def _nested(self, values: list[PartT]) -> Mapping[str, PartT] | tuple[PartT, ...]:
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))


def build_action_head(space: Space, latent: int, log_std_init: float = 0.0) -> nn.Module:
    """Build the head for an action space.

    Raises:
        UnsupportedSpaceError: a Box that does not contain floats.
    """
    if isinstance(space, Box):
        if not space.dtype.startswith("float"):
            raise UnsupportedSpaceError(f"the action space must hold floats, got {space.dtype}; declare it as float32")
        return GaussianHead(latent, space, log_std_init)
    if isinstance(space, Dict | Tuple):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return NestedHead(space, [build_action_head(child, latent, log_std_init) for child in children])
    if isinstance(space, Discrete):
        return DiscreteHead(latent, space)
    return MultiDiscreteHead(latent, space) if isinstance(space, MultiDiscrete) else MultiBinaryHead(latent, space)


def require_box(space: Space) -> Box:
    """Return the space if it is a Box, which state-dependent noise needs.

    Raises:
        SettingsError: it is not a Box.
    """
    if not isinstance(space, Box):
        raise SettingsError(f"use_sde needs a Box action space, not {type(space).__name__}; leave use_sde out")
    return space
