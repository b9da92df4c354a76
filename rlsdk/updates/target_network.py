"""Target networks: a slowly moving copy of an online network."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from rlsdk.kernels import Structure
from rlsdk.networks.architecture import architecture

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class TargetNetwork(Generic[NetworkT]):
    """`network` is a copy of `online` without gradients; `update` moves it towards `online`."""

    def __init__(self, online: NetworkT) -> None:
        self.online, self.network = online, deepcopy(online).eval()
        self.network.requires_grad_(False)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._structure = Structure(online)
        self._own = Structure(self.network)
        self._has_buffers = any(True for _ in online.buffers())

    def _pair(self) -> None:
        """Pair the parameters in their order. If the layers of the online network were replaced, it is copied again."""
        if architecture(self.network) != architecture(self.online):
            self.network = deepcopy(self.online).eval()
            self._own = Structure(self.network)
        self.network.requires_grad_(False)
        self._pairs = list(zip(self.network.parameters(), self.online.parameters(), strict=True))
        self._has_buffers = any(True for _ in self.online.buffers())

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """target += tau * (online - target); buffers such as batch-norm statistics are copied whole."""
        if self._structure.changed() | self._own.changed():
            self._pair()
        for mine, theirs in self._pairs:
            mine.lerp_(theirs, tau)
        if self._has_buffers:
            for mine, theirs in zip(self.network.buffers(), self.online.buffers(), strict=True):
                mine.copy_(theirs)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.network.load_state_dict(state)
